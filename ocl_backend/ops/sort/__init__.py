"""Operators that sort."""
