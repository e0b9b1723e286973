"""Gives a program of PoCL's declarations of the functions that it calls, in place of all.

PoCL 3.1 reads clang's `opencl-c.h`, 18,000 declarations, twice for each program: 75 ms, of which a
small program takes 15 by itself. What is compiled of a program's own text stays the same; a name
that is missing here is an error of the compiler. Where PoCL or its headers are other ones than
those, programs are built as they are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HEADER = Path("/usr/share/pocl/include/opencl-c.h")
"""Debian's and Ubuntu's place for the copy of clang's header that belongs to their PoCL."""
VERSION = "PoCL 3.1"
"""What the platform says of itself where this was tried."""
UNREAD = "-D_OPENCL_H_"
"""The guard of the header: PoCL includes it, and nothing of it is read."""
STATE = "#pragma OPENCL EXTENSION all : disable\n"
"""What PoCL's own headers end with."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PIECE = re.compile(r"^[ \t]*(#[^\n]*)|([^#;\s][^;#]*;)", re.MULTILINE)
_CALLED = re.compile(r"\b(?!__attribute__\b)(\w+)\s*\(")
_NAME = re.compile(r"\b[a-z_]\w*")

Guards = tuple[str, ...]
"""Lines of the preprocessor's between which a declaration stands; an `#endif` for each `#if`."""


def are_known(platform: Any) -> bool:
    """Return whether programs of this `pyopencl.Platform` may be built so."""
    return VERSION in platform.version and HEADER.exists()


class Header(NamedTuple):
    """What a header says: what stands before all declarations, these by name, and what ends it."""

    begin: str
    declared: dict[str, list[tuple[Guards, str]]]
    end: str


@cache
def _header() -> Header:
    """Read the header; macros are those by which it writes declarations, others are users'."""
    lines = HEADER.read_text(encoding="utf-8").replace("\\\n", " ")
    guards: list[str] = []
    begin: list[str] = []
    end: list[str] = []
    declared: defaultdict[str, list[tuple[Guards, str]]] = defaultdict(list)
    for line, declaration in _PIECE.findall(_COMMENT.sub("", lines)):
        directive = line.rstrip()
        if declaration:
            name = _CALLED.search(declaration)
            assert name is not None, declaration
            declared[name[1]].append((tuple(guards[1:]), declaration.strip()))
        elif directive.startswith("#if"):
            guards.append(directive)  # the first is the header's own
        elif directive.startswith("#el"):
            guards[-1] += "\n" + directive
        elif directive.startswith("#endif"):
            guards.pop()
        elif directive.startswith("#define __") or directive.endswith(": enable"):
            begin.append(_guarded(tuple(guards[1:]), directive))
        elif directive.startswith("#undef"):
            end.append(f"{directive}\n")
    return Header("".join(begin), declared, "".join(end))


def _guarded(guards: Guards, text: str) -> str:
    """Return a text where it is compiled under the same conditions as in the header."""
    return "\n".join([*guards, text, *("#endif" for _ in guards)]) + "\n"


@cache
def _of(name: str) -> str:
    """Return the declarations of the functions of this name."""
    under: defaultdict[Guards, list[str]] = defaultdict(list)
    for guards, declaration in _header().declared.get(name, ()):
        under[guards].append(declaration)
    return "".join(_guarded(guards, "\n".join(texts)) for guards, texts in under.items())


def shortened(source: str) -> str:
    """Return a program with the declarations of what it names, to be built with `UNREAD`.

    Lines keep their numbers in what the compiler tells.
    """
    header = _header()
    declarations = "".join(_of(name) for name in sorted({*_NAME.findall(source)}))
    return f"{header.begin}{declarations}{header.end}{STATE}#line 1\n{source}"


def forget() -> None:
    """Read the header again, which is another one."""
    _header.cache_clear()
    _of.cache_clear()
