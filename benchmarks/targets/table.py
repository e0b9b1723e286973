"""Figures of variants that were compiled for other GPUs, as tables."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.targets.rows import Result, Row
from benchmarks.targets.target import TARGETS

HEAD = """# Kernels compiled for other GPUs

Made by `python -m benchmarks targets` with {compilers}. [Kernels, for
authors](kernels.md#compiled-without-the-hardware) says what the figures mean. Nothing here was run.
"""


def markdown_of(result: Result) -> str:
    """Return the page: a table of targets, then one of families for each target."""
    parts = [
        HEAD.format(compilers=" and ".join(result.compilers.values())),
        "## Targets\n",
        *_of_targets(result),
    ]
    for name in dict.fromkeys(row.target for row in result.rows):
        parts += [f"\n## {name}, {TARGETS[name].product}\n", *_of_families(result, name)]
        parts += _of_wrong(row for row in result.rows if row.target == name and row.is_wrong)
        if left_out := result.left_out[name]:
            parts.append(
                f"\nLeft out, since the target lacks what they ask for: {_names(left_out)}."
            )
    return "\n".join(parts) + "\n"


def _of_targets(result: Result) -> Iterable[str]:
    yield "| target | variants | refused | chosen, with scratch | samples with scratch |"
    yield "|---|---|---|---|---|"
    for name in dict.fromkeys(row.target for row in result.rows):
        rows = [row for row in result.rows if row.target == name]
        sampled = [row for row in rows if row.origin == "sample"]
        chosen = [row for row in rows if row.origin != "sample"]
        refused = sum(row.figures is None for row in rows)
        yield f"| {name} | {len(rows)} | {refused} | {_spilling(chosen)} | {_spilling(sampled)} |"


def _of_families(result: Result, target: str) -> Iterable[str]:
    yield (
        "| family | variants | registers | local memory, B | lanes | threads per unit | "
        "samples with scratch, most B |"
    )
    yield "|---|---|---|---|---|---|---|"
    rows = [row for row in result.rows if row.target == target and row.figures]
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        figures = [row.figures for row in own if row.figures]
        ranges = " | ".join(
            _range([getattr(one, name) for one in figures])
            for name in ("registers", "local", "lanes", "threads")
        )
        spilled = [row for row in own if row.figures and row.figures.scratch]
        most = max((one.scratch for one in figures), default=0)
        worst = f"{len(spilled)}, {most}" if spilled else "0"
        yield f"| {family} | {len(own)} | {ranges} | {worst} |"


def _of_wrong(rows: Iterable[Row]) -> Iterable[str]:
    lines = [
        f"- {row.origin} of `{row.family}` for `{row.problem}`: "
        + (f"{row.figures.scratch} B of scratch" if row.figures else row.error)
        for row in rows
    ]
    return ["\nWrong:\n", *lines] if lines else []


def _spilling(rows: list[Row]) -> str:
    count = sum(row.figures is not None and row.figures.scratch > 0 for row in rows)
    return f"{count} of {len(rows)}"


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
