"""Programs that are given few declarations: those of what they name, under the same conditions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import declarations

TEXT = """
#ifndef _OPENCL_H_
#define _OPENCL_H_
#include "base.h"
#if defined(A) && \\
    defined(B)
#define __cnfn __attribute__((const))
#endif // defined(A) && \\
       // defined(B)
#pragma OPENCL EXTENSION half : enable
float __cnfn sin(float); /* not
this; */
#ifdef HALF
half __cnfn sin(half);
#else
void __attribute__((convergent)) wait(int flags,
                                      int others);
#endif
#pragma OPENCL EXTENSION half : disable
#undef __cnfn
#endif
"""
BEGIN = """#if defined(A) &&      defined(B)
#define __cnfn __attribute__((const))
#endif
#pragma OPENCL EXTENSION half : enable
"""
END = f"#undef __cnfn\n{declarations.STATE}#line 1\n"


@pytest.fixture
def header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = tmp_path / "opencl-c.h"
    path.write_text(TEXT)
    monkeypatch.setattr(declarations, "HEADER", path)
    declarations.forget()
    yield
    declarations.forget()


@pytest.mark.usefixtures("header")
@pytest.mark.parametrize(
    ("program", "given"),
    [
        ("x = cosine(1);", ""),
        (
            "x = sin(1);",
            "float __cnfn sin(float);\n#ifdef HALF\nhalf __cnfn sin(half);\n#endif\n",
        ),
        (
            "wait(1, 2);",
            "#ifdef HALF\n#else\nvoid __attribute__((convergent)) wait(int flags,\n"
            "                                      int others);\n#endif\n",
        ),
    ],
)
def test_a_program_is_given_what_it_names(program: str, given: str) -> None:
    assert declarations.shortened(program) == f"{BEGIN}{given}{END}{program}"
