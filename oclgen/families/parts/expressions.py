"""Pieces of OpenCL C that templates of several families write; they know no family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from oclgen.families.parts.epilogue import plus_residual
from oclgen.render import VECTOR_WIDTHS, vector


def lane(value: str, width: int, at: int) -> str:
    """Return one lane of a vector `value` of `width` lanes; of width 1 the value itself.

    Args:
        value: name of the vector.
        width: its lanes.
        at: which lane, from 0 on.
    """
    return lanes_of(value, width, at, 1)


def lanes_of(value: str, vec: int, start: int, width: int) -> str:
    """Return `width` lanes, from `start` on, of a value that has `vec`.

    Args:
        value: name of the vector.
        vec: its lanes.
        start: first lane to return.
        width: lanes to return, an OpenCL vector's width.
    """
    if width == vec:
        return value
    return f"{value}.s{''.join(f'{at:x}' for at in range(start, start + width))}"


def vector_of(texts: Iterable[str], scalar: str = "float") -> str:
    """Return the vector whose lanes are these; the text itself if it is one."""
    lanes = list(texts)
    return lanes[0] if len(lanes) == 1 else f"({vector(len(lanes), scalar)})({', '.join(lanes)})"


def load(width: int, pointer: str) -> str:
    """Return what loads `width` neighbours that are stored in the type of their registers."""
    return f"*({pointer})" if width == 1 else f"vload{width}(0, {pointer})"


def store(width: int, value: str, pointer: str) -> str:
    """Return what stores `width` neighbours in the type of their registers, with no semicolon.

    Args:
        width: neighbours, an OpenCL vector's width or 1.
        value: what is stored.
        pointer: to the first of them.
    """
    return f"*({pointer}) = {value}" if width == 1 else f"vstore{width}({value}, 0, {pointer})"


def read_item(width: int, item: str) -> str:
    """Return what loads `width` neighbours of an array from this item of it on."""
    return item if width == 1 else f"vload{width}(0, &{item})"


def write_item(width: int, value: str, item: str) -> str:
    """Return what stores `width` neighbours in an array from this item of it on.

    Args:
        width: neighbours, an OpenCL vector's width or 1.
        value: what is stored.
        item: the first of them, such as `array[3]`.
    """
    return f"{item} = {value}" if width == 1 else f"vstore{width}({value}, 0, &{item})"


def store_result(width: int, value: str, place: str, residual: bool) -> str:
    """Return the statement that stores results; a residual is added, and ACT applied, here.

    Args:
        width: neighbouring results.
        value: the sums.
        place: pointer to the results.
        residual: whether there is one.
    """
    value = f"ACT({value}{plus_residual(residual, width, place)})" if residual else value
    return f"STORE{width}({value}, {place});"


def plus(offset: int) -> str:
    """Return the text that adds an offset; none for 0."""
    return f" + {offset}" if offset else ""


def chunks(total: int, widest: int = VECTOR_WIDTHS[-1]) -> Iterator[tuple[int, int]]:
    """Yield (start, width) of the widest vectors that make up `total` lanes."""
    at = 0
    for width in (w for w in reversed(VECTOR_WIDTHS) if w <= widest):
        while total - at >= width:
            yield at, width
            at += width


def halves(width: int) -> list[int]:
    """Return the widths that a vector's halves have, and theirs, down to 1; none of a scalar."""
    return [each for each in reversed(VECTOR_WIDTHS) if each < width]


def branch(first: bool, columns: tuple[int, ...] | None) -> str:
    """Return the condition under which a piece of code is for `column`; None: all others."""
    if columns is None:
        return "" if first else "else "
    tests = " || ".join(f"column == {each}" for each in columns)
    return f"{'' if first else 'else '}if ({tests}) "


def below(*ends: tuple[str, str]) -> str:
    """Return the condition that each place is below its end; none without ends."""
    tests = " && ".join(f"{place} < {end}" for place, end in ends)
    return f"if ({tests}) " if tests else ""


def some_items(count: int, work_items: int) -> str:
    """Return the condition that a work-item is one of the first `count`; none if all are."""
    return f"if (id < {count}) " if count < work_items else ""


def defines(phases: Sequence[Mapping[str, int | str]]) -> str:
    """Return sizes as macros: numbers where all phases agree, else tables read by `phase`."""
    lines = []
    for name, value in phases[0].items():
        values = [sizes[name] for sizes in phases]
        if len(set(values)) == 1:
            lines.append(f"#define {name} {value}")
        else:
            listed = ", ".join(map(str, values))
            lines.append(f"__constant int {name.lower()}_of[] = {{{listed}}};")
            lines.append(f"#define {name} {name.lower()}_of[phase]")
    return "\n".join(lines)
