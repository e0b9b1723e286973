"""Exhaustively measured search spaces: read from files, and made on a device of our own.

`replay.py` searches them. A table of ours is CSV under gzip: a column per
parameter and `ms`, infinite for a variant that failed. Tables of the auto-tuning community's hub
(https://github.com/AutoTuningAssociation/benchmark_hub, MIT) are read in both of its formats: the
caches of Kernel Tuner and T4 (Hozzova et al. 2024, doi:10.1145/3629527.3651429).

    python -m benchmarks table 256x256x256 gemm_register gemm_register.csv.gz --only order=m
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, make_dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen.variant import Variant
from search_spaces.space import ListedSpace, Space
from search_spaces.values import Value

Row = tuple[Mapping[str, Value], float]
"""A config and its milliseconds."""


@dataclass(frozen=True, eq=False)
class Table:
    """A space of which every config's time is known: `ms[row]`, infinite for failures."""

    name: str
    space: Space
    ms: NDArray[np.float64]

    @cached_property
    def optimum(self) -> float:
        """The best time there is."""
        return float(self.ms.min())

    def time(self, config: Any) -> float:
        """Return the milliseconds of a config of this space."""
        row = self.space.row_of(config)
        assert row is not None
        return float(self.ms[row])

    def best(self, count: int) -> list[Any]:
        """Return the `count` fastest configs."""
        return [self.space.config(int(row)) for row in np.argsort(self.ms)[:count]]

    def fitting(self, config: Any) -> Any | None:
        """Return the config with the same values of another device's table, None without one."""
        values = asdict(config)
        if not set(self.space.names) <= set(values):
            return None
        ours = self.space.kind(**{name: values[name] for name in self.space.names})
        return ours if self.space.row_of(ours) is not None else None


def read_table(path: Path) -> Table:
    """Return the table in a file of one of the three formats, told apart by their content.

    Files of a folder are one table in parts; a config that several of them have counts once.
    """
    parts = sorted(path.iterdir()) if path.is_dir() else [path]
    known: dict[tuple[Value, ...], Row] = {}
    for row in (row for part in parts for row in _rows(part)):
        known.setdefault(tuple(row[0].values()), row)
    return _table(f"{path.parent.name}/{path.name.split('.')[0]}", list(known.values()))


def _rows(path: Path) -> list[Row]:
    is_packed = path.name.endswith(".gz")
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if is_packed
        else path.open(encoding="utf-8") as file
    ):
        return list(_rows_of_csv(file) if ".csv" in path.name else _rows_of_json(file))


def _rows_of_csv(file: Iterable[str]) -> Iterable[Row]:
    for line in csv.DictReader(file):
        ms = float(line.pop("ms"))
        yield {name: _value(text) for name, text in line.items()}, ms


def _value(text: str) -> Value:
    if text in ("True", "False"):
        return text == "True"
    return int(text) if text.lstrip("-").isdecimal() else text


def _rows_of_json(file: Any) -> Iterable[Row]:
    content = json.load(file)
    if "cache" in content:
        names, objective = content["tune_params_keys"], content.get("objective", "time")
        for entry in content["cache"].values():
            yield {name: entry[name] for name in names}, _cost(entry, objective)
        return
    for entry in content["results"]:
        fine = entry["invalidity"] == "correct"
        yield entry["configuration"], _time(entry["measurements"][0]["value"]) if fine else inf


def _cost(entry: Mapping[str, Any], objective: str) -> float:
    """Return what is to be small: the time, or the inverse of the rate that is the objective.

    A launch of Kernel Tuner's hotspot makes as many steps as its config says, so that its time says
    little.
    """
    ms = _time(entry["time"])
    return ms if objective == "time" or ms == inf else 1 / float(entry[objective])


def _time(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else inf


def _table(name: str, rows: list[Row]) -> Table:
    """Return the table with rows in the order of the product; what never varies is left out."""
    values = {n: sorted({config[n] for config, _ in rows}) for n in rows[0][0]}
    values = {n: choices for n, choices in values.items() if len(choices) > 1}
    points = np.array([[v.index(config[n]) for n, v in values.items()] for config, _ in rows])
    order = np.lexsort(points.T[::-1])
    kind = make_dataclass("Config", list(values), frozen=True)
    lists = tuple(tuple(choices) for choices in values.values())
    space = ListedSpace(kind, tuple(values), lists, points[order].astype(np.int64))
    return Table(name, space, np.array([ms for _, ms in rows], dtype=np.float64)[order])


def measure_table(key: str, family: str, device: str, only: dict[str, str], path: Path) -> None:
    """Measure every config of a family's space and write the table; minutes to hours.

    A config's time is its fastest sample: whatever else a machine does only adds to it.

    Args:
        key: of a product, as `oclgen.keys.parse_gemm` reads it.
        family: whose space is measured.
        device: index, or a part of a name.
        only: values that parameters must have, as text.
        path: of the table, compressed.
    """
    from oclgen.keys import parse_gemm
    from oclgen.measuring.worker import Worker
    from oclgen.opencl.device import select
    from search_spaces.space import space_of

    problem, opened = parse_gemm(key), select(device)
    space = space_of(family, problem, opened.limits)
    configs = [space.config(row) for row in range(len(space))]
    configs = [one for one in configs if all(str(getattr(one, n)) == v for n, v in only.items())]
    varied = [n for n in space.names if len({getattr(one, n) for one in configs}) > 1]
    with Worker(opened.index, opened.info) as worker, gzip.open(path, "wt", newline="") as file:
        out = csv.writer(file)
        out.writerow([*varied, "ms"])
        for done, config in enumerate(configs, 1):
            ms = min(worker.measure(problem, Variant(family, config)).samples, default=inf)
            out.writerow([*(getattr(config, name) for name in varied), f"{ms:.6g}"])
            print(f"\r{done} of {len(configs)}", end="", file=sys.stderr, flush=True)
