"""Sparse tensors: what takes their indices and values apart, and what the host is left with."""
