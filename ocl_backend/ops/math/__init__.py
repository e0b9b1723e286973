"""Operators that compute every item by itself."""
