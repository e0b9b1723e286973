"""Replays searches on exhaustively measured spaces and prints how near to the optimum they come.

It measures nothing: times come from `tables.py`. Ours is `search_spaces.search.Search`,
what `oclgen tune` asks. The peers are random search, Optuna's TPE and Kernel Tuner's strategies in
its simulation mode (`pip install 'oclgen[bench]'`).

    git clone --depth 1 https://github.com/AutoTuningAssociation/benchmark_hub HUB
    python -m benchmarks replay HUB/cachefiles/gemm_milo/*_T4.json.gz --methods ours,greedy_ils
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

# one thread per process: the processes are what runs side by side
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from benchmarks.replays.tables import Table, read_table  # noqa: E402
from search_spaces.search import Search  # noqa: E402

OWN = Path(__file__).parents[1] / "data/tables/gemm_register.csv.gz"
COLD, WARM = (25, 50, 100, 200), (10, 20, 30)
"""Unique evaluations after which the best is looked at."""
WARM_BEST, WARM_DEVICES = 10, 3
"""A warm search begins with the best 10 configs of each of 3 other devices."""

Times = Sequence[float]
"""Milliseconds of the unique evaluations of one run, in order."""
Method = Callable[[Table, int, int], Times]
"""Searches a table with a number of evaluations and a seed."""


def ours(
    table: Table, count: int, seed: int, starts: Sequence[Any] = (), ahead: int = 0
) -> list[float]:
    """Ask and tell.

    Args:
        table: what is searched.
        count: configs to try.
        seed: of the search.
        starts: configs to try first.
        ahead: configs that are asked for before earlier ones are told, as while builds run ahead.

    Returns:
        Milliseconds, in order.
    """
    search = Search(table.space, starts, seed)
    times: list[float] = []
    waiting: list[Any] = []
    while len(times) < min(count, len(table.space)):
        while len(waiting) <= ahead and not search.exhausted:
            waiting.append(search.ask())
        config = waiting.pop(0)
        times.append(table.time(config))
        search.tell(config, times[-1])
    return times


def random(table: Table, count: int, seed: int) -> list[float]:
    """Draw without replacement.

    Args:
        table: what is searched.
        count: configs to try.
        seed: of the draw.

    Returns:
        Milliseconds, in order.
    """
    return list(np.random.default_rng(seed).permutation(table.ms)[:count])


def tpe(table: Table, count: int, seed: int) -> list[float]:
    """Optuna's TPE as it comes; what it asks twice or is invalid costs nothing but is told.

    Args:
        table: what is searched.
        count: different valid configs to try.
        seed: of the sampler.

    Returns:
        Milliseconds, in order.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    space = table.space
    found: dict[int, float] = {}
    while len(found) < count:
        trial = study.ask()
        point = [
            trial.suggest_int(name, 0, len(values) - 1)
            for name, values in zip(space.names, space.values, strict=True)
        ]
        row = space.row_at(point)
        ms = inf if row is None else float(table.ms[row])
        study.tell(trial, np.log(ms) if ms < inf else 20.0)
        if row is not None:
            found.setdefault(row, ms)
    return list(found.values())


def kernel_tuner(strategy: str, table: Table, count: int, seed: int) -> Times:
    """One of Kernel Tuner's strategies with its own settings.

    Args:
        strategy: Kernel Tuner's name of it.
        table: what is searched.
        count: configs to try.
        seed: of the strategy.

    Returns:
        Milliseconds, in order.
    """
    from benchmarks.replays.kernel_tuner_peer import search

    return search(strategy, table, count, seed)


def method_of(name: str) -> Method:
    """Return the method of that name; what is not ours is a strategy of Kernel Tuner."""
    own: dict[str, Method] = {
        "ours": ours,
        "ours-ahead": partial(ours, ahead=2),
        "random": random,
        "tpe": tpe,
    }
    return own.get(name) or partial(kernel_tuner, name)


def reached(table: Table, times: Times, counts: Sequence[int]) -> list[float]:
    """Return the part of the optimum's speed that was found after each of `counts`.

    Args:
        table: what was searched.
        times: milliseconds, in the order of the search.
        counts: evaluations.

    Returns:
        A part for each count, 1 where the optimum was found.
    """
    best = np.minimum.accumulate(times)
    return [table.optimum / float(best[min(count, len(best)) - 1]) for count in counts]


def cold(path: Path, name: str, seed: int) -> list[float]:
    """Search one table, knowing nothing.

    Args:
        path: of the table.
        name: of the method.
        seed: of the search.

    Returns:
        What `reached` says after each of `COLD`.
    """
    table = read_table(path)
    return reached(table, method_of(name)(table, COLD[-1], seed), COLD)


def warm(path: Path, others: Sequence[Path], seed: int) -> list[float]:
    """Search one table after the best of the others, their first ones first.

    Args:
        path: of the table.
        others: tables whose best configs come first.
        seed: of the search.

    Returns:
        What `reached` says after each of `WARM`.
    """
    table = read_table(path)
    rankings = [read_table(other).best(WARM_BEST) for other in others]
    mixed = [table.fitting(one) for rank in zip(*rankings, strict=True) for one in rank]
    starts = list(dict.fromkeys(one for one in mixed if one is not None))
    return reached(table, ours(table, WARM[-1], seed, starts), WARM)


def line(label: str, results: NDArray[np.float64]) -> str:
    """Return the mean over the seeds and what nine of ten of them reach, per count."""
    nine = np.sort(results, axis=0)[len(results) // 10]
    cells = (f"{mean:6.1%} /{most:6.1%}" for mean, most in zip(results.mean(0), nine, strict=True))
    return f"{label:44s}" + "   ".join(cells)


def main(
    tables: Sequence[Path], methods: Sequence[str], seeds: int, with_others: bool, jobs: int | None
) -> None:
    """Replay and print.

    Args:
        tables: files of tables; none: the repository's own.
        methods: names of methods, which `with_others` does not read.
        seeds: searches of each.
        with_others: begin each search with the best of the other tables.
        jobs: processes; None: as many as there are processors.
    """
    counts = WARM if with_others else COLD
    print(f"mean / reached by nine of ten of {seeds} seeds, after {counts} evaluations")
    found: dict[str, list[NDArray[np.float64]]] = {}
    # spawned, since numpy reads the number of threads when it is imported
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for table, method, search in searches(tables or [OWN], methods, with_others):
            results = np.array(list(pool.map(search, range(seeds))))
            found.setdefault(method, []).append(results)
            print(line(f"{table} {method}", results), flush=True)
    if len(tables) > 1:
        for method, each in found.items():
            print(line(f"{len(each)} tables {method}", np.mean([np.sort(r, 0) for r in each], 0)))


def searches(
    tables: Sequence[Path], methods: Sequence[str], with_others: bool
) -> Iterator[tuple[str, str, Callable[[int], list[float]]]]:
    """Yield what to replay: the table's and the method's name, and a function of the seed.

    Args:
        tables: files of tables.
        methods: names of methods.
        with_others: begin each search with the best of the other tables, by the project's own
            method.
    """
    for path in tables:
        label = f"{path.parent.name}/{path.name.split('.')[0]}"
        if with_others:
            others = [other for other in tables if other != path]
            yield label, "warm", partial(warm, path, others[:WARM_DEVICES])
            continue
        for name in methods:
            yield label, name, partial(cold, path, name)
