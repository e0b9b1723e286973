"""Kernels compiled for GPUs that are not there: their compilers need no hardware."""
