"""What is never read or completed."""
