"""dlsp: a local language server for code completion. Knows text and policy, never torch."""

__version__ = "0.1.0"
