"""The matrices of Cook-Toom are exact, minimal and what the papers print."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from oclgen.families.winograd.winograd_matrices import Matrix, cook_toom, statements

OUT_TILES = (2, 4, 6)
KINDS = ("output", "filter", "input")


@pytest.mark.parametrize("out_tile", OUT_TILES)
def test_they_filter_exactly(out_tile: int) -> None:
    """For every pair of unit signals, A^T [(G g) * (B^T d)] is the correlation, in fractions."""
    t = cook_toom(out_tile)
    for d, g in product(range(out_tile + 2), range(3)):
        products = [f[g] * i[d] for f, i in zip(t.filter, t.input, strict=True)]
        got = [sum(a * p for a, p in zip(row, products, strict=True)) for row in t.output]
        assert got == [int(y + g == d) for y in range(out_tile)]


def test_f2_is_lavin_and_gray_s() -> None:
    """arXiv:1509.09308, equation 8, except for signs that G and B^T may exchange."""
    half = Fraction(1, 2)
    rows: Any = ((1, 0, 0), (half, half, half), (half, -half, half), (0, 0, 1))
    assert cook_toom(2).filter == rows
    rows = ((1, 1, 1, 0), (0, 1, -1, 1))
    assert cook_toom(2).output == rows


@pytest.mark.parametrize(("out_tile", "kind"), list(product(OUT_TILES, KINDS)))
def test_the_code_multiplies_by_the_matrix(out_tile: int, kind: str) -> None:
    matrix: Matrix = getattr(cook_toom(out_tile), kind)
    names = [f"x{i}" for i in range(len(matrix[0]))]
    outputs = [f"y{i}" for i in range(len(matrix))]
    text = "\n".join(statements(matrix, names, outputs, "float"))
    python = re.sub(r"const float |;", "", re.sub(r"(\d)f", r"\1", text))
    for column, name in enumerate(names):
        values = {each: float(each == name) for each in names}
        exec(python, {}, values)
        assert [values[y] for y in outputs] == pytest.approx(
            [float(row[column]) for row in matrix], rel=1e-8, abs=1e-8
        )


@pytest.mark.parametrize(("out_tile", "kind"), list(product(OUT_TILES, KINDS)))
def test_the_code_wastes_nothing(out_tile: int, kind: str) -> None:
    """No product with 0 or 1, and no more operations than without shared pairs."""
    matrix: Matrix = getattr(cook_toom(out_tile), kind)
    names, outputs = [f"x{i}" for i in range(8)], [f"y{i}" for i in range(8)]
    text = "\n".join(statements(matrix, names[: len(matrix[0])], outputs[: len(matrix)], "float"))
    assert not re.search(r"\b[01]\.0f \*", text)
    adds = len(re.findall(r" [+-] ", text))
    assert adds <= sum(sum(c != 0 for c in row) - 1 for row in matrix)


def test_half_and_minus_two_share_sums_as_plus_and_minus_one_do() -> None:
    text = "\n".join(statements(cook_toom(4).input, list("abcdef"), list("uvwxyz"), "float4"))
    assert "const float4 s0 = b - d;" in text
    assert text.count("*") <= 10
