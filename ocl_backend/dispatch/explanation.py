"""What `torch.ocl.explain` returns: rows of operators and problems, printed as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple


class ExplainRow(NamedTuple):
    """One line of a report: how often an operator met a problem, what ran, where it came from.

    `measured_ms` is the time of this very problem on this device, None where it was not tuned;
    `predicted_ms` the model's, None where it was not asked. `oclgen explain PROBLEM` lists what
    else could have served.
    """

    calls: int
    operator: str
    problem: str
    rung: str
    measured_ms: float | None
    predicted_ms: float | None
    family: str
    config: str

    def cells(self) -> list[str]:
        """Return the values as text; None is a dash."""
        texts = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in self)
        return ["-" if text == "None" else text for text in texts]


@dataclass(frozen=True)
class Explanation:
    """What `torch.ocl.explain` saw: the function's result and one row per operator and problem."""

    result: Any
    rows: tuple[ExplainRow, ...]

    def __str__(self) -> str:
        """Return the rows as a plain table with aligned columns."""
        table = [ExplainRow._fields, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the rows as the table that a notebook shows."""
        lines = [_line("th", ExplainRow._fields), *(_line("td", row.cells()) for row in self.rows)]
        return f"<table>{''.join(lines)}</table>"


def _line(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
