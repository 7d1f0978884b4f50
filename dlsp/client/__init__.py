"""The engine, ours or another, as a client sees it."""
