"""What the model may see: both sides of the cursor, and other files."""
