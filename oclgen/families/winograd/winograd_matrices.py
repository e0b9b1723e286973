"""Winograd's minimal-filtering matrices by Cook-Toom, in exact fractions, and short code for them.

It knows nothing of convolutions, layouts or kernels; those are in `oclgen.families.winograd_*`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations

Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]

_ZERO, _HALF, _ONE, _TWO = Fraction(0), Fraction(1, 2), Fraction(1), Fraction(2)
POINTS: dict[int, tuple[Fraction, ...]] = {
    4: (_ZERO, _ONE, -_ONE),
    6: (_ZERO, _ONE, -_ONE, _HALF, -_TWO),
    8: (_ZERO, _ONE, -_ONE, _HALF, -_HALF, _TWO, -_TWO),
}
"""Finite interpolation points per size of the input tile; infinity is the last one everywhere.

With 0, ±1, 1/2, -2 the error of F(4x4, 3x3) is about two thirds of that with ±2: reciprocal
points of opposite sign balance the rows (Barabasz et al., arXiv:1803.10986).
"""


@dataclass(frozen=True, slots=True)
class Transforms:
    """The matrices of F(out_tile, kernel): y = A^T [(G g) * (B^T d)], correlation of d with g.

    Shapes: output A^T [out_tile, in_tile], filter G [in_tile, kernel], input B^T
    [in_tile, in_tile], where in_tile = out_tile + kernel - 1.
    """

    output: Matrix
    filter: Matrix
    input: Matrix


@cache
def cook_toom(out_tile: int, kernel: int = 3) -> Transforms:
    """Return the matrices of F(out_tile, kernel) over `POINTS` (Winograd 1980; arXiv:1509.09308).

    Raises:
        KeyError: there are no interpolation points for tiles of out_tile + kernel - 1.
    """
    points = POINTS[out_tile + kernel - 1]
    filters, inputs = [], []
    for index, point in enumerate(points):
        others = points[:index] + points[index + 1 :]
        scale = _product(tuple(point - other for other in others))
        # the sign moves from G to B^T, so that G stays the matrix of Lavin and Gray
        sign = 1 if scale > 0 else -1
        filters.append(tuple(point**power / abs(scale) for power in range(kernel)))
        inputs.append((*(sign * c for c in _polynomial(others)), Fraction(0)))
    filters.append(_unit(kernel - 1, kernel))
    inputs.append(_polynomial(points))
    columns = [tuple(point**power for power in range(out_tile)) for point in points]
    columns.append(_unit(out_tile - 1, out_tile))
    return Transforms(tuple(zip(*columns, strict=True)), tuple(filters), tuple(inputs))


def _unit(position: int, size: int) -> Row:
    return tuple(Fraction(int(i == position)) for i in range(size))


def _product(values: Row) -> Fraction:
    result = Fraction(1)
    for value in values:
        result *= value
    return result


def _polynomial(roots: Row) -> Row:
    """Return the coefficients of prod (x - root), lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *coefficients], [*coefficients, Fraction(0)]
        coefficients = [a - root * b for a, b in zip(shifted, scaled, strict=True)]
    return tuple(coefficients)


def statements(matrix: Matrix, inputs: list[str], outputs: list[str], kind: str) -> list[str]:
    """Return OpenCL C statements that set outputs = matrix · inputs.

    Pairs of inputs that several rows share are computed once, into temporaries of type `kind`.
    Zeros cost nothing, ±1 no multiplication; everything else is written a * b + c, which the
    compiler may contract.

    Args:
        matrix: exact fractions.
        inputs: names of variables, one for each column.
        outputs: places, one for each row.
        kind: type of the temporaries: float or a vector of floats.
    """
    terms = [{i: c for i, c in enumerate(row) if c} for row in matrix]
    names = list(inputs)
    lines: list[str] = []
    while (shared := _most_common_pair(terms)) is not None:
        (first, second), ratio = shared
        lines.append(
            f"const {kind} s{len(lines)} = {_sum({first: Fraction(1), second: ratio}, names)};"
        )
        names.append(f"s{len(lines) - 1}")
        for row in terms:
            if _ratio(row, first, second) == ratio:
                row[len(names) - 1] = row.pop(first)
                del row[second]
    return lines + [f"{out} = {_sum(row, names)};" for out, row in zip(outputs, terms, strict=True)]


def _ratio(row: dict[int, Fraction], first: int, second: int) -> Fraction | None:
    return row[second] / row[first] if first in row and second in row else None


def _most_common_pair(
    terms: list[dict[int, Fraction]],
) -> tuple[tuple[int, int], Fraction] | None:
    """Return the pair of inputs, and their ratio, that most rows share; None if none do."""
    counts = Counter(
        ((i, j), row[j] / row[i]) for row in terms for i, j in combinations(sorted(row), 2)
    )
    if not counts:
        return None
    best = max(counts, key=lambda pair: (counts[pair], abs(pair[1]) == 1))
    return best if counts[best] > 1 else None


def _sum(row: dict[int, Fraction], names: list[str]) -> str:
    """Return the text of a sum of scaled names, a positive term first where there is one."""
    text = ""
    for index, coefficient in sorted(row.items(), key=lambda item: (item[1] < 0, item[0])):
        magnitude = abs(coefficient)
        term = names[index] if magnitude == 1 else f"{_literal(magnitude)} * {names[index]}"
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {term}" if text else (f"-{term}" if sign == "-" else term)
    return text


def _literal(value: Fraction) -> str:
    """Return the fp32 literal nearest to `value`."""
    text = f"{float(value):.9g}"
    return text + ("f" if any(mark in text for mark in ".e") else ".0f")
