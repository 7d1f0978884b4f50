"""Text alone: the mirror of a document, edits, lines, and the pure steps after a completion."""
