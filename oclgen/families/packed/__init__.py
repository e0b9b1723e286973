"""Families for products with packed weights, and what they share."""
