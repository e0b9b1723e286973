"""Families that compute convolutions, and the parts that only they share."""
