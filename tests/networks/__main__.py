"""Draws networks of four libraries, runs each in a process of its own, and keeps a table.

    python -m tests.networks --count 60 --json networks.json --markdown networks.md
    python -m tests.networks --only timm:test_vit,transformers:mamba --seed 12345

A network that the CPU cannot run, or not exactly enough, is left out with the reason and another
one is drawn. Kernels are built without the compiler's optimiser, except for one in 16, unless
`THOROUGH=1` is set. The command exits with 1 where a network differs from the CPU, raises, ends its
process or takes too long.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

from tests.networks import zoo

GOOD, LEFT_OUT = "agrees", "left out"
MARK = "outcome of a network: "


@dataclass
class Row:
    """What became of a network.

    `outcome` is "agrees", "wrong", "raises", "left out", "crashes" or "too long"; `errors` and
    `own` are those of the device and the CPU's by name, `fallbacks` counts calls on the CPU.
    """

    name: str
    seed: int
    outcome: str = "crashes"
    errors: dict[str, float] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    note: str = ""

    def cells(self) -> list[str]:
        """Return the row as texts of a table."""
        pairs = (f"{self.errors[k]:.0e} ({self.own[k]:.0e})" for k in self.errors)
        errors = list(pairs) or ["", "", ""]
        fell = ", ".join(f"{name} {count}" for name, count in self.fallbacks.items())
        first = self.note.strip().splitlines()[0][:120] if self.note.strip() else ""
        return [self.name, self.outcome, *errors, f"{self.seconds:.0f}", fell, first]


HEAD = ("network", "outcome", "output", "gradients", "steps", "s", "on the CPU", "note")


def one(name: str, seed: int, device: str) -> Row:
    """Compare a network in this process."""
    import torch

    import ocl_backend  # noqa: F401  (registers the device)
    from tests import sampled_builds
    from tests.networks import compare

    sampled_builds.begin()
    row, begin = Row(name, seed), time.monotonic()
    ocl = torch.get_device_module("ocl")
    try:
        verdict = compare.quietly(
            lambda: compare.compare(lambda: zoo.make(name), torch.device(device), seed)
        )
        row.errors, row.own = verdict.errors, verdict.own
        row.outcome = GOOD if verdict.right else "wrong"
    except compare.LeftOutError as error:
        row.outcome, row.note = LEFT_OUT, str(error)
    except Exception as error:  # an error of the device's own is as wrong as a number
        row.outcome = "raises"
        row.note = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    row.fallbacks, row.seconds = ocl.fallbacks(), time.monotonic() - begin
    return row


def in_a_process(name: str, seed: int, device: str, limit: float) -> Row:
    """Compare a network in a process that may die, or take `limit` seconds."""
    command = [sys.executable, "-m", "tests.networks", "--one", name]
    command += ["--seed", str(seed), "--device", device]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return Row(name, seed, "too long", seconds=limit)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return Row(**json.loads(line.removeprefix(MARK)))
    note = f"exit {done.returncode}: {done.stderr[-2000:]}"
    return Row(name, seed, seconds=time.monotonic() - begin, note=note)


def rows(given: argparse.Namespace, seed: int) -> Iterator[Row]:
    """Run what is asked for and yield its rows as they end; what is left out is replaced.

    No more networks of a library run than are wanted, so `given.jobs` does not alter the draw.
    """
    if given.only:
        names = given.only.split(",")
        wanted, queues = {"": len(names)}, {"": iter(names)}
    else:
        wanted = zoo.counts(given.count, given.library)
        queues = {library: zoo.drawn(library, seed) for library in wanted}
    end = time.monotonic() + given.seconds
    running: dict[Future[Row], str] = {}
    with ThreadPoolExecutor(given.jobs) as pool:
        while True:
            for library, names in queues.items():
                room = min(wanted[library], given.jobs - len(running))
                for name in islice(names, room if time.monotonic() < end else 0):
                    wanted[library] -= 1
                    asked = pool.submit(in_a_process, name, seed, given.device, given.limit)
                    running[asked] = library
            if not running:
                return
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                yield (row := ended.result())
                wanted[running.pop(ended)] += row.outcome == LEFT_OUT and not given.only


def libraries(text: str) -> tuple[str, ...]:
    """Return the libraries that are named.

    Raises:
        ArgumentTypeError: one of them is not known.
    """
    if unknown := set(text.split(",")) - zoo.SHARES.keys():
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} is none of {[*zoo.SHARES]}")
    return tuple(text.split(","))


def markdown(found: list[Row]) -> str:
    """Return the table of rows."""
    lines = [HEAD, ("---",) * len(HEAD), *(row.cells() for row in found)]
    plain = (" | ".join(cell.replace("|", "/") for cell in line) for line in lines)
    return "".join(f"| {line} |\n" for line in plain)


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.networks")
    parser.add_argument("--count", type=int, default=60, help="of networks that are compared")
    parser.add_argument("--seed", type=int, help="of the draw; a fresh one if left out")
    parser.add_argument(
        "--library",
        type=libraries,
        default=tuple(zoo.SHARES),
        help=f"only these of {', '.join(zoo.SHARES)}, with commas",
    )
    parser.add_argument("--only", help="these networks, LIBRARY:NAME, with commas")
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of one network")
    parser.add_argument("--seconds", type=float, default=1e9, help="when no other begins")
    parser.add_argument("--jobs", type=int, default=1, help="networks that run at once")
    parser.add_argument("--json", type=Path, help="where the rows are kept after each")
    parser.add_argument("--markdown", type=Path, help="where they are kept as a table")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    if given.one:
        print(MARK + json.dumps(asdict(one(given.one, seed, given.device))))
        return 0
    print(f"networks of seed {seed}", flush=True)
    found: list[Row] = []
    for row in rows(given, seed):
        found.append(row)
        print("  ".join(filter(None, row.cells())), flush=True)
        if given.json:
            given.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
        if given.markdown:
            given.markdown.write_text(markdown(found))
    compared = [row for row in found if row.outcome != LEFT_OUT]
    bad = [row.name for row in compared if row.outcome != GOOD]
    left_out = len(found) - len(compared)
    print(f"{len(compared) - len(bad)} of {len(compared)} agree, {left_out} were left out")
    if bad:
        print(f"again: python -m tests.networks --seed {seed} --only {','.join(bad)}")
    return 1 if bad or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
