"""Figures of compiled variants, as rows of a file. Nothing is compiled here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.targets.compilers import Figures
from benchmarks.targets.target import TARGETS, Target


@dataclass(frozen=True, slots=True)
class Row:
    """One variant on one target: the worst figures of its kernels, or what went wrong."""

    target: str
    family: str
    problem: str
    origin: str
    variant: str
    figures: Figures | None
    error: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it does not compile, or is not drawn and yet needs more than registers."""
        if self.figures is None:
            return True
        return self.origin != "sample" and self.figures.scratch > 0


@dataclass(frozen=True, slots=True)
class Result:
    """What runs found: versions by maker, rows, and by target the families left out and why."""

    compilers: dict[str, str]
    rows: tuple[Row, ...]
    left_out: dict[str, dict[str, str]]

    def to_json(self) -> str:
        """Return the text of a file, a line for each row."""
        head = {"compilers": self.compilers, "left_out": self.left_out}
        lines = ",\n".join(json.dumps(asdict(row)) for row in self.rows)
        return f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{lines}\n]}}\n'

    def having(
        self,
        target: Target,
        compiler: str,
        rows: tuple[Row, ...],
        left_out: dict[str, str],
        families: tuple[str, ...] = (),
    ) -> Result:
        """Return the same with these rows in place of those that the target had.

        Args:
            target: that the rows are of.
            compiler: its version.
            rows: all that the target has from now on, of these families.
            left_out: families without a row, and why.
            families: whose rows are replaced; all if there are none.
        """
        others = tuple(
            row
            for row in self.rows
            if row.target != target.name or (families and row.family not in families)
        )
        every = sorted((*others, *rows), key=lambda row: list(TARGETS).index(row.target))
        return Result(
            self.compilers | {target.maker: compiler},
            tuple(every),
            self.left_out | {target.name: left_out},
        )

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Return what `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        rows = tuple(
            Row(**{**row, "figures": Figures(**row["figures"]) if row["figures"] else None})
            for row in values.pop("rows")
        )
        return cls(rows=rows, **values)
