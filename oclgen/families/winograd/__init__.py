"""Families that convolve in a transformed domain, and the parts that only they share."""
