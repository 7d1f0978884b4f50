"""Why something was shown or not, and how to reproduce it."""
