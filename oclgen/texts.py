"""Texts of strangers, such as drivers, as they may be shown and kept."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text with a space for each letter that no line can show: control codes, and more."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
