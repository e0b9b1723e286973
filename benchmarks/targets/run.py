"""Compiles variants for targets and keeps their figures, as rows of a file."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import reduce
from pathlib import Path

from benchmarks.targets.cases import Case, cases, unasked
from benchmarks.targets.compilers import CompileError, Figures, compiled, missing, version
from benchmarks.targets.rows import Result, Row
from benchmarks.targets.table import markdown_of
from benchmarks.targets.target import TARGETS, Target
from oclgen.plan import Launch


class Programs:
    """A target's compiled programs: what several variants share is compiled once."""

    def __init__(self, target: Target, pool: ThreadPoolExecutor) -> None:
        self._target = target
        self._pool = pool
        self._known: dict[tuple[str, str], Future[Figures]] = {}

    def submit(self, launches: tuple[Launch, ...]) -> list[Future[Figures]]:
        """Return the figures of each launch's kernel, to come."""
        return [self._submit(launch) for launch in launches]

    def _submit(self, launch: Launch) -> Future[Figures]:
        key = (launch.source, launch.kernel)
        if key not in self._known:
            self._known[key] = self._pool.submit(compiled, launch, self._target)
        return self._known[key]


def rows_of(target: Target, wanted: list[Case], jobs: int) -> Iterator[Row]:
    """Compile cases for a target, and yield their rows in order.

    Args:
        target: whose compiler is there.
        wanted: variants for problems.
        jobs: programs that are compiled at a time.
    """
    with ThreadPoolExecutor(jobs) as pool:
        programs = Programs(target, pool)
        futures = [programs.submit(case.variant.plan(case.problem).launches) for case in wanted]
        for case, parts in zip(wanted, futures, strict=True):
            yield _row(target, case, parts)


def _row(target: Target, case: Case, parts: list[Future[Figures]]) -> Row:
    figures, error = None, ""
    try:
        figures = reduce(Figures.worse, [part.result() for part in parts])
    except CompileError as refused:
        error = str(refused)
    variant = case.variant
    return Row(
        target.name, variant.family, case.problem.key(), case.origin, variant.to_text(), figures,
        error,
    )  # fmt: skip


def main(
    targets: tuple[str, ...],
    families: tuple[str, ...],
    seed: int,
    samples: int,
    jobs: int,
    json_path: Path | None,
    markdown: Path | None,
) -> bool:
    """Compile for targets whose compiler is there, print what is wrong, and write the files.

    Args:
        targets: their names; all of them if there are none.
        families: only these; all if there are none.
        seed: draws the samples.
        samples: configs that are drawn for each problem and family.
        jobs: programs that are compiled at a time.
        json_path: file of rows; those of the targets (of `families`, if any) are replaced.
        markdown: file of the tables.

    Returns:
        Whether every variant compiled, and no default and no guess needs scratch.
    """
    chosen = [TARGETS[name] for name in targets or TARGETS]
    absent = {maker: missing(maker) for maker in dict.fromkeys(one.maker for one in chosen)}
    for maker, reason in absent.items():
        if reason:
            print(f"{maker}: skipped, {reason}")
    result = _begun(json_path)
    fine = True
    for target in (one for one in chosen if absent[one.maker] is None):
        rows = tuple(rows_of(target, cases(target, seed, samples, families), jobs))
        fine &= _told(target, rows)
        result = result.having(target, version(target.maker), rows, unasked(target), families)
        if json_path:
            json_path.write_text(result.to_json())
    if markdown:
        markdown.write_text(markdown_of(result))
    return fine


def _begun(path: Path | None) -> Result:
    """Return what a file holds, nothing if there is none yet."""
    if path and path.exists():
        return Result.from_json(path.read_text())
    return Result({}, (), {})


def _told(target: Target, rows: tuple[Row, ...]) -> bool:
    """Print what is wrong on a target, and return whether nothing is."""
    wrong = [row for row in rows if row.is_wrong]
    print(f"{target.name} ({target.product}): {len(rows)} variants, {len(wrong)} wrong", flush=True)
    for row in wrong:
        what = row.error or f"{row.figures}"
        print(f"  {row.origin} for {row.problem}: {row.variant}\n    {what}", flush=True)
    return not wrong
