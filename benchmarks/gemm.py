"""Measures the GEMM families against torch's matrix product, side by side in one run.

It keeps nothing; `oclgen tune` is what fills the database. Each shape is searched with a few
variants, or what the database knows is taken; then that and the peer take turns, so that a busy
machine slows both.

    python benchmarks/gemm.py --device 0 --trials 30 --only squares,skinny
    python benchmarks/gemm.py --trials 0 --dtype fp32,bf16 --json benchmarks/results/mine_gemm.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from math import exp, inf, log, prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from results import Result, Row, table

from oclgen import peak
from oclgen.device import Device, select
from oclgen.families import FAMILIES, config_to_json, families_for
from oclgen.measure import Bench, time_samples
from oclgen.problem import DTYPES, GemmProblem, Problem
from search_spaces.contest import contest
from search_spaces.search import Search
from search_spaces.space import seeds_of, space_of
from tuned_db.choose import Chooser
from tuned_db.store import open_store

ROUNDS = 3
"""Turns of ours and the peer; the median is over all their samples."""


def shapes(kind: str) -> dict[str, list[GemmProblem]]:
    """Return the problems by group; GPUs get larger squares."""
    sizes = (256, 512, 1024, 2048) + ((4096, 8192) if kind == "gpu" else ())
    side = sizes[-2]
    return {
        "squares": [GemmProblem(size, size, size) for size in sizes],
        "transposes": [
            GemmProblem(side, side, side, trans_a=trans_a, trans_b=trans_b)
            for trans_a, trans_b in ((False, True), (True, False), (True, True))
        ],
        "skinny": [
            GemmProblem(1, 4096, 4096),
            GemmProblem(16, 4096, 4096),
            GemmProblem(128, 4096, 4096),
            GemmProblem(64, 1000, 2048),
            GemmProblem(4096, 4096, 64),
        ],
        "linear": [
            GemmProblem(rows, columns, k, trans_b=True)
            for rows, columns, k in ((1, 4096, 4096), (8, 4096, 4096), (8, 1000, 512))
        ],
        "batched": [GemmProblem(256, 256, 256, batch=16)],
    }


class Ours(NamedTuple):
    """The fastest variant found: family, config, and its plan ready to run."""

    family: str
    config: Any
    prepared: Any


class Peer:
    """torch in a process of its own."""

    def __init__(self, script: str) -> None:
        path = Path(__file__).with_name(script)
        self._process = subprocess.Popen(
            [sys.executable, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.name: str = self._answer()

    def samples(self, problem: Problem) -> list[float]:
        """Return torch's times in milliseconds."""
        assert self._process.stdin
        self._process.stdin.write(problem.key() + "\n")
        self._process.stdin.flush()
        return list(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("torch's process ended; its message stands above")
        return json.loads(line)


def fastest(device: Device, problem: Problem, trials: int, names: list[str]) -> Ours:
    """Search `names` with `trials` variants and return the fastest right one.

    Without trials it is the variant that the database or the package's records know.
    """
    bench = Bench(device, problem)
    if not trials:
        choice = Chooser(open_store(None), device.info, device.limits).choose(problem)
        plan = FAMILIES[choice.family].plan(problem, choice.config)
        if not (measured := bench.measure(plan, 0.0)).ok:
            raise RuntimeError(f"{choice.family} of {problem.key()} fails: {measured.reason}")
        return _ready(device, bench, choice.family, choice.config)
    searches = {
        name: Search(space_of(name, problem, device.limits), seeds_of(name, problem, device.limits))
        for name in names
    }
    best_ms: float = inf
    best: tuple[str, Any] | None = None
    for name in contest(searches, trials, lambda: inf):
        config = searches[name].ask()
        plan = FAMILIES[name].plan(problem, config)
        measurement = bench.measure(plan, best_ms)
        searches[name].tell(config, measurement.ms)
        if measurement.ms < best_ms:
            best_ms, best = measurement.ms, (name, config)
        elif not measurement.ok:
            print(f"  {name} {config_to_json(config)}: {measurement.reason[:200]}", flush=True)
    if best is None:
        raise RuntimeError(f"none of {trials} variants of {problem.key()} works on {device.name}")
    return _ready(device, bench, *best)


def _ready(device: Device, bench: Bench, family: str, config: Any) -> Ours:
    problem = bench.problem
    output = device.empty(4 * prod(problem.buffers[problem.output]))
    plan = FAMILIES[family].plan(problem, config)
    return Ours(family, config, device.prepare(plan, {**bench.buffers, problem.output: output}))


def compare(device: Device, peer: Peer, problem: Problem, trials: int, names: list[str]) -> float:
    """Print one line for `problem`; return how many times faster than the peer ours is."""
    return measured(device, peer, problem, trials, names).ratio


def measured(device: Device, peer: Peer, problem: Problem, trials: int, names: list[str]) -> Row:
    """Measure both sides of `problem` in turns, print one line and return it."""
    serving = [f.NAME for f in families_for(problem) if not names or f.NAME in names]
    ours = fastest(device, problem, trials, serving)
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        mine += time_samples(ours.prepared)
        theirs += peer.samples(problem)
    rate, peer_rate = (problem.flops / median(times) * 1e-6 for times in (mine, theirs))
    share = rate / peak.measure(device).gflops if problem.dtype == "fp32" else None
    row = Row(
        problem.key(), ours.family, config_to_json(ours.config), median(mine), median(theirs),
        rate, peer_rate, share,
    )  # fmt: skip
    print(
        f"{row.problem:<44} {row.ours_ms:9.4f} ms {rate:9.1f} GFLOP/s "
        f"{'' if share is None else f'{share:5.0%} of peak'}  peer {row.peer_ms:9.4f} ms "
        f"{peer_rate:9.1f} GFLOP/s  ratio {row.ratio:5.2f} "
        f"(best of samples {min(theirs) / min(mine):5.2f})\n  {row.family} {row.config}",
        flush=True,
    )
    return row


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    logs = [log(value) for value in values]
    return exp(sum(logs) / len(logs))


def main() -> None:
    """Run the groups that were asked for and print a line per shape and a mean per group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="0", help="index or part of the name")
    parser.add_argument("--trials", type=int, default=24, help="variants per shape; 0: as tuned")
    parser.add_argument("--only", default="", help="groups, with commas between them")
    parser.add_argument("--family", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--dtype", default="fp32", help=f"with commas: {','.join(DTYPES)}")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    device, peer = select(options.device), Peer("torch_gemm.py")
    print(f"{device.name} ({device.info.runtime}) against {peer.name}")
    print(f"measured fp32 peak: {peak.measure(device).gflops:.1f} GFLOP/s\n")
    groups = shapes(device.limits.kind)
    rows: list[Row] = []
    for group, dtype in product(
        options.only.split(",") if options.only else groups, options.dtype.split(",")
    ):
        these = [
            measured(device, peer, replace(p, dtype=dtype), options.trials, options.family)
            for p in groups[group]
        ]
        mean = geometric_mean(row.ratio for row in these)
        print(f"{group} {dtype}: {mean:.2f} times the peer\n", flush=True)
        rows += these
    print(table(rows))
    if options.json:
        peak_gflops = peak.measure(device).gflops
        Result(device.info, peer.name, peak_gflops, tuple(rows)).save(options.json)


if __name__ == "__main__":
    main()
