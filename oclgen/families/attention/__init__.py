"""Families that compute attention and its gradients."""
