"""Families that compute matrix products, and the parts that only they share."""
