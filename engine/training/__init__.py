"""Training a denoiser over a frozen base: data, encoding, loop, evaluation."""
