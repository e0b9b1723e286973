"""Sparse tensors: operators on their indices and values, and those that are left to the CPU."""
