"""A suggestion from the engine's answer to the editor's reply, and while the user types it."""
