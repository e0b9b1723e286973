"""Operators that make, index and rearrange tensors."""
