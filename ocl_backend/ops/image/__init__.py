"""Operators on images: pooling and sampling."""
