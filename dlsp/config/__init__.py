"""What the user has set, checked."""
