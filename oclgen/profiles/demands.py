"""Which extensions beyond OpenCL C 1.2 a program's text needs: found from the text alone.

The compiler of the profiled device would refuse a text with an extension that it lacks; the
compiler of the device that is here may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple


class Demand(NamedTuple):
    """An extension that a text needs, and the words of the text that need it."""

    extension: str
    words: str


ASSEMBLY = "inline assembly"
"""Stands for an extension if a text has instructions of its own."""
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WIDTH = r"(?:2|3|4|8|16)?"
_POINTER = r"(?!\s*(?:\*|__restrict|restrict))"
_PATTERNS = {
    "cl_khr_fp64": rf"\b(?:double{_WIDTH}|(?:convert|as)_double\w*)\b",
    "cl_khr_fp16": rf"\b(?:convert|as)_half{_WIDTH}\b|\bhalf(?:2|3|4|8|16)\b|\bhalf\b{_POINTER}",
    "cl_khr_int64_base_atomics": r"\batom_(?:add|sub|xchg|inc|dec|cmpxchg)\b",
    "cl_khr_int64_extended_atomics": r"\batom_(?:min|max|and|or|xor)\b",
    "cl_khr_subgroups": r"\b(?:sub_group_\w+|get_sub_group_\w+|get_num_sub_groups)\b",
    "cl_intel_subgroups": r"\bintel_sub_group_\w+",
    ASSEMBLY: r"\b(?:__asm__|__asm|asm)\b",
    "OpenCL C 2.0": r"\b(?:work_group_\w+|atomic_\w+_explicit)\b",
}
_RULES = {extension: re.compile(pattern) for extension, pattern in _PATTERNS.items()}
_TYPEDEF = re.compile(r"\btypedef\s+half\s+(\w+)\s*;")


@lru_cache(maxsize=4096)
def demands(source: str) -> tuple[Demand, ...]:
    """Return what a program's text needs, the first words of each that do.

    `vload_half`, `vstore_half` and pointers to half are OpenCL C 1.2; variables, arrays and
    arithmetic of half are not, whatever a typedef calls them.
    """
    return tuple(_found(_COMMENTS.sub(" ", source)))


def _found(text: str) -> Iterator[Demand]:
    for extension, rule in _RULES.items():
        # the typedef itself declares no variable; what is declared with its name is asked below
        if found := rule.search(_TYPEDEF.sub(" ", text)):
            yield Demand(extension, found.group())
    for name in _TYPEDEF.findall(text):
        if found := re.search(rf"\b{name}\b{_POINTER}(?!\s*\))[^\n;]*", _TYPEDEF.sub(" ", text)):
            yield Demand("cl_khr_fp16", found.group())
