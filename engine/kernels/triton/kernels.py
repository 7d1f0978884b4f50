"""The Triton form of `engine.kernels.Kernels`, and the linear over grouped weights."""

from engine.kernels.triton.attention import attention
from engine.kernels.triton.linear import linear
from engine.kernels.triton.norm import rms_norm
from engine.kernels.triton.rope_cache import rope_cache
from engine.kernels.triton.swiglu import swiglu

__all__ = ["attention", "linear", "rms_norm", "rope_cache", "swiglu"]
