"""Searches on exhaustively measured spaces."""
