"""Measures tasks on both sides in turns and keeps the rows."""
