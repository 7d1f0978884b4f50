"""Whether to complete here, how much, and when."""
