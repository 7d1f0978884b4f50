"""Triton kernels, one file each; a docstring gives the equation, `engine.kernels.reference` and
`reference_step` the meaning. Importing this package imports triton: only `dispatch` does.

All arithmetic is in float32 or, for products of bfloat16 and float16 rows, accumulated in it. Row
offsets are 64-bit. TRITON_INTERPRET=1, set before triton is imported, runs them on a CPU.
"""
