"""Operators that are matrix products, and what is composed of them."""
