"""Operators besides convolutions and products: drawn by a seed, and called through torch."""
