"""Families that compute depthwise convolutions."""
