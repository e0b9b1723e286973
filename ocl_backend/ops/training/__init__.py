"""Losses, fused optimizer steps, gradient scaling."""
