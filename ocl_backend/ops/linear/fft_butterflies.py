"""Texts of Fourier transforms of a few numbers in registers, by names of variables.

A composite size is split by Cooley and Tukey (1965), an odd prime by sums and differences of the
numbers that have conjugate roots: half the multiplications.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import count
from math import cos, pi, sin, sqrt


def butterfly(names: Sequence[str], suffix: str) -> tuple[list[str], list[str]]:
    """Return statements, and the expressions of the forward transform, in order.

    Args:
        names: variables of type `pair`, the numbers.
        suffix: of a literal of type `real`: "f" or nothing.
    """
    lines: list[str] = []
    fresh = (f"t{number}" for number in count())
    return lines, _transform(list(names), lines, fresh, suffix)


def _transform(names: list[str], lines: list[str], fresh: Iterator[str], suffix: str) -> list[str]:
    size = len(names)
    if size == 1:
        return names
    inner = next((d for d in (4, 2, 3, 5, 7, 11, 13) if size % d == 0 and d < size), 0)
    if not inner:
        return _prime(names, lines, fresh, suffix)
    outer = size // inner
    columns = []
    for second in range(outer):
        column = _transform(names[second::outer], lines, fresh, suffix)
        turned = [
            _turned(one, Fraction(first * second, size), suffix) for first, one in enumerate(column)
        ]
        columns.append([_named(one, lines, fresh) for one in turned])
    out = [""] * size
    for first in range(inner):
        row = _transform([column[first] for column in columns], lines, fresh, suffix)
        out[first::inner] = row
    return out


def _prime(names: list[str], lines: list[str], fresh: Iterator[str], suffix: str) -> list[str]:
    """Return the transform of a prime number of numbers."""
    size, first = len(names), names[0]
    if size == 2:
        return [_named(f"{first} {sign} {names[1]}", lines, fresh) for sign in "+-"]
    half = range(1, size // 2 + 1)
    sums = [_named(f"{names[i]} + {names[size - i]}", lines, fresh) for i in half]
    less = [_named(f"{names[i]} - {names[size - i]}", lines, fresh) for i in half]
    out = [_named(" + ".join([first, *sums]), lines, fresh)] + [""] * (size - 1)
    for k in half:
        angles = [2 * pi * (i * k % size) / size for i in half]
        even = [f"{_number(cos(a), suffix)} * {one}" for a, one in zip(angles, sums, strict=True)]
        odd = [f"{_number(sin(a), suffix)} * {one}" for a, one in zip(angles, less, strict=True)]
        real = _named(" + ".join([first, *even]), lines, fresh)
        side = _named(" + ".join(odd), lines, fresh)
        turned = f"(pair)({side}.y, -{side}.x)"
        out[k] = _named(f"{real} + {turned}", lines, fresh)
        out[size - k] = _named(f"{real} - {turned}", lines, fresh)
    return out


def _named(expression: str, lines: list[str], fresh: Iterator[str]) -> str:
    """Return the variable that holds an expression; a variable is one already."""
    if expression.isidentifier():
        return expression
    name = next(fresh)
    lines.append(f"const pair {name} = {expression};")
    return name


def _turned(name: str, turn: Fraction, suffix: str) -> str:
    """Return `name` times exp(-2i * pi * turn)."""
    x, y, eighths = f"{name}.x", f"{name}.y", turn * 8
    if eighths == 0:
        return name
    if eighths == 2:
        return f"(pair)({y}, -{x})"
    if eighths == 4:
        return f"-{name}"
    if eighths == 6:
        return f"(pair)(-{y}, {x})"
    if eighths.denominator == 1:
        root = _number(sqrt(0.5), suffix)
        both = {1: (f"{x} + {y}", f"{y} - {x}"), 3: (f"{y} - {x}", f"-{x} - {y}")}
        real, imaginary = both[eighths.numerator % 4]
        return f"{'-' if eighths > 4 else ''}{root} * (pair)({real}, {imaginary})"
    c, s = (_number(of(2 * pi * float(turn)), suffix) for of in (cos, sin))
    return f"(pair)({c} * {x} + {s} * {y}, {c} * {y} - {s} * {x})"


def _number(value: float, suffix: str) -> str:
    text = f"{value!r}{suffix}"
    return f"({text})" if value < 0 else text
