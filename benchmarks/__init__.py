"""Measurements of the two programs; each command ends with one JSON line on stdout.

This room knows the public faces only: `Engine.infill` in-process, and the LSP server over stdio.
Nothing in `dlsp` or `engine` imports it.
"""
