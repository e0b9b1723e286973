"""Whole networks, and the command that checks them against the CPU."""
