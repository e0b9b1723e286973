"""Kernels compiled for GPUs that this machine does not have: compilers need no hardware."""
