"""Generated GEMM and convolution kernels for any OpenCL device.

This package is the generator and the one door to OpenCL; searching, storing and PyTorch are
`search_spaces`, `tuned_db` and `ocl_backend`.
"""

GENERATOR_VERSION = "3"
"""Raised whenever a config of an older version would generate another kernel; part of a record."""

__all__ = ["GENERATOR_VERSION"]
