"""Texts from outside, such as drivers' messages, made safe to show and keep."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text with a space for each letter that no line can show: control codes, and more."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
