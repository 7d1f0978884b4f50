"""What becomes of suggestions; stays on this machine."""
