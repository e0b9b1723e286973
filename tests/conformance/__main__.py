"""Compares the device with the CPU over torch's whole OpInfo database and prints a table.

    python -m tests.conformance [--only 'linalg*,sort'] [--samples 5] [--jobs 2] [--json FILE]
    python -m tests.conformance --seconds 500 --json part2.json --after part1.json

The second form runs a part of it where time is short: it ends after so long, and leaves out what
an earlier part has. It judges against the lists beside it, in both directions; CI runs a sample.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import Counter
from concurrent.futures import as_completed
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pebble import ProcessPool
from rich.console import Console
from rich.progress import track
from rich.table import Table

from oclgen.measuring.child import PROCESSES_VARIABLE
from tests.conformance import cases, lists

SECONDS = 600
"""After so long an operator is stopped and counted as failed."""


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.conformance")
    parser.add_argument("--only", default="*", help="names or patterns of OpInfos, by commas")
    parser.add_argument("--samples", type=int, help="limit of samples of each; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--device", type=int, default=0, help="index of the OpenCL device")
    parser.add_argument("--json", type=Path, help="write every outcome there")
    parser.add_argument(
        "--seconds", type=float, help="end after so long, with what is done by then"
    )
    parser.add_argument("--after", type=Path, action="append", default=[], help="leave these out")
    return parser.parse_args()


def outcomes(arguments: argparse.Namespace) -> list[cases.Outcome]:
    """Run every operator asked for; a crash or a hang costs that operator alone."""
    done, asked = list[cases.Outcome](), _asked(arguments.only.split(","), arguments.after)
    os.environ.setdefault(PROCESSES_VARIABLE, "0")  # of each job: they have the cores already
    spawn = multiprocessing.get_context("spawn")  # no OpenCL device survives a fork
    # the database is imported ahead: a job that takes its first question would import it behind a
    # lock, for which the others wait 60 s and die
    given: dict[str, Any] = {"context": spawn, "initializer": cases.operators}
    with ProcessPool(max_workers=arguments.jobs, **given) as pool:
        futures = {
            pool.schedule(
                cases.run, (*one, arguments.samples, arguments.device), timeout=SECONDS
            ): one
            for one in asked
        }
        # futures of the pool's own class
        finished: Any = as_completed(futures, timeout=arguments.seconds)
        try:
            for future in track(finished, "operators", total=len(futures)):
                try:
                    done.append(future.result())
                except Exception as error:  # also of the CPU's own run, or of a process that died
                    failure = f"the run ended: {type(error).__name__} {error}".splitlines()[0]
                    done.append(cases.Outcome(*futures[future], samples=1, failures=[failure]))
        except TimeoutError:
            print(f"{len(asked) - len(done)} of {len(asked)} did not end in time, or did not begin")
            pool.stop()
    return sorted(done, key=lambda one: (one.name, one.dtype))


def _asked(patterns: list[str], after: list[Path]) -> list[tuple[str, str]]:
    """Return names and dtypes that match, without those of earlier parts."""
    parts = (json.loads(path.read_text()) for path in after)
    known = {(one["name"], one["dtype"]) for part in parts for one in part}
    asked = (
        (name, str(dtype).removeprefix("torch."))
        for name, info in cases.operators().items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
        for dtype in cases.dtypes(info)
    )
    return [one for one in asked if one not in known]


def complaints(done: list[cases.Outcome], whole: bool) -> list[str]:
    """Return what contradicts the lists; unused entries count only in a whole run."""
    found = []
    needed: dict[str, set[str]] = {"unsupported": set(), "fallbacks": set()}
    for one in done:
        entry = lists.entry("unsupported", one.name)
        if one.failures and entry:
            needed["unsupported"].add(entry)
            continue
        if one.failures:
            found.append(f"{one.name} {one.dtype}: {one.failures[0]} ({len(one.failures)} in all)")
        for operator in one.fallbacks:
            entry = lists.entry("fallbacks", operator)
            if entry is None:
                found.append(f"{one.name} {one.dtype}: {operator} fell back and is not declared")
            else:
                needed["fallbacks"].add(entry)
    if whole:
        for kind, used in needed.items():
            unused = sorted(set(lists.declared(kind)) - used)
            found += [f"{kind}.toml: {name} is not needed any more" for name in unused]
    return found


def status(one: cases.Outcome) -> str:
    """Return an outcome's column in the table."""
    failed = one.status == "failed"
    return "unsupported" if failed and lists.entry("unsupported", one.name) else one.status


def table(done: list[cases.Outcome]) -> Table:
    """Return how many operators did how, by dtype, and over all dtypes at once."""
    columns = ("native", "decomposed", "fallback", "unsupported", "failed", "no sample")
    drawn = Table("dtype", *columns, title="torch's OpInfo database on ocl")
    for dtype in sorted({one.dtype for one in done}):
        count = Counter(status(one) for one in done if one.dtype == dtype)
        drawn.add_row(dtype, *(str(count[column]) for column in columns))
    return drawn


def without_fallback(done: list[cases.Outcome]) -> int:
    """Return how many operator names are right on the device alone, at every dtype they have."""
    good: dict[str, bool] = {}
    for one in done:
        if one.status != "no sample":
            name = cases.operators()[one.name].name
            good[name] = good.get(name, True) and one.status in ("native", "decomposed")
    return sum(good.values())


def main() -> None:
    """Run, print the table and every complaint, and exit with 1 if there is one."""
    arguments = options()
    done = outcomes(arguments)
    console = Console()
    console.print(table(done))
    console.print(f"operator names without any fallback: {without_fallback(done)}")
    if arguments.json:
        rows = [{**asdict(one), "status": status(one)} for one in done]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    is_part = arguments.only != "*" or arguments.seconds or arguments.after
    found = complaints(done, whole=not is_part and arguments.samples is None)
    for line in found:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
