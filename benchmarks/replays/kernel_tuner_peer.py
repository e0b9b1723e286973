"""Runs a strategy of Kernel Tuner on a table, in its simulation mode; the table is all it knows.

It is a module of its own since the package is optional: `pip install 'oclgen[bench]'`.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
import warnings
from functools import partial
from math import isfinite
from pathlib import Path

import numpy as np
from constraint import FunctionConstraint
from kernel_tuner import tune_kernel

from benchmarks.replays.tables import Table


def search(strategy: str, table: Table, count: int, seed: int) -> list[float]:
    """Return the times of `count` unique evaluations of `strategy`, in order.

    Args:
        strategy: Kernel Tuner's name of it.
        table: what is searched; its times stand for measurements.
        count: evaluations of different valid configs.
        seed: of the strategy.

    Returns:
        Milliseconds.
    """
    random.seed(seed)
    np.random.seed(seed)  # Kernel Tuner draws from the module's own generator
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache.json"
        cache.write_text(json.dumps(_cache(table)))
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there is no kernel, so nothing of it fits
            results, _ = tune_kernel(
                "replayed",
                "__global__ void replayed() {}",
                1,
                [],
                _values(table),
                restrictions=[FunctionConstraint(partial(_is_valid, table))],
                strategy=strategy,
                strategy_options={"max_fevals": count},
                simulation_mode=True,
                cache=str(cache),
                block_size_names=["no such block size"],
            )
    rows = [_row(table, {name: result[name] for name in table.space.names}) for result in results]
    return [float(table.ms[row]) for row in dict.fromkeys(rows) if row is not None]


def _values(table: Table) -> dict[str, list[int]]:
    """Return the values' indices: Kernel Tuner's strategies use nothing but their order."""
    names = zip(table.space.names, table.space.values, strict=True)
    return {name: list(range(len(values))) for name, values in names}


def _is_valid(table: Table, *point: int, **named: int) -> bool:
    """Say whether a point is in the table; Kernel Tuner passes it in either way."""
    return _row(table, named or dict(zip(table.space.names, point, strict=True))) is not None


def _row(table: Table, config: dict[str, int]) -> int | None:
    return table.space.row_at([config[name] for name in table.space.names])


def _cache(table: Table) -> dict[str, object]:
    names = list(table.space.names)
    entries = {}
    for point, ms in zip(table.space.points.tolist(), table.ms, strict=True):
        entry: dict[str, object] = dict(zip(names, point, strict=True))
        entry["time"] = ms if isfinite(ms) else "RuntimeFailedConfig"
        times = dict.fromkeys(("compile_time", "verification_time", "benchmark_time"), 0.0)
        entries[",".join(map(str, point))] = entry | times
    return {
        "device_name": "replay",
        "kernel_name": "replayed",
        "problem_size": 1,
        "tune_params_keys": names,
        "tune_params": _values(table),
        "objective": "time",
        "cache": entries,
    }
