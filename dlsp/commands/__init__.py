"""The command line, but for the server itself."""
