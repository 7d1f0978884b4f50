"""engine: a masked-diffusion infilling engine. Knows tokens and tensors, never LSP."""

__version__ = "0.1.0"
