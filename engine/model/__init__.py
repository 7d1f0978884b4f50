"""The networks: one transformer (the base) and the denoiser over it. Tensors only, no text."""
