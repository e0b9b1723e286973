"""Crews for `search_spaces.spread`: processes of this machine, or of a Ray cluster.

pebble and Ray start, kill, place and restart the processes.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from oclgen.opencl.device import Device, devices
from oclgen.opencl.exclusive import kind_of
from oclgen.problem import Problem
from search_spaces import orders
from search_spaces.progress import FEW, Budget, CrewError, TuneResult
from search_spaces.spread import Lot, Spread, Turn

Take = Callable[[orders.Order], list[TuneResult]]

PREFIX = "opencl_"
"""The beginning of devices' names among a Ray node's resources."""


def kinds_of(some: Iterable[Device]) -> Counter[str]:
    """Return how many of some devices there are of each kind."""
    return Counter(kind_of(device.info) for device in some)


def kinds_here() -> Counter[str]:
    """Return how many devices of each kind this machine has."""
    return kinds_of(devices())


def _begin() -> None:
    """Open the devices of a process that will take orders, and import what it takes them with."""
    devices()


@dataclass
class LocalCrew:
    """Processes of this machine, at most `workers` at a time; a killed one is replaced.

    `kinds` counts the devices to use, by kind; None: all of this machine. The processes start on
    entry, while this one prepares what it will ask them.
    """

    workers: int
    families: frozenset[str]
    where: str
    take: Take = orders.take
    kinds: Counter[str] | None = None
    _pool: Any = field(init=False)

    def __enter__(self) -> LocalCrew:
        """Start the pool, and its processes.

        Raises:
            CrewError: they do not start, or pebble is not installed.
        """
        pebble = _needed("pebble", "workers")
        spawn = multiprocessing.get_context("spawn")  # no OpenCL device survives a fork
        # pebble lets one process at a time receive: what it imports for that, all would wait for
        self._pool = pebble.ProcessPool(self.workers, context=spawn, initializer=_begin)
        if not self._pool.active:  # it starts when it is first asked
            raise CrewError("the processes of the crew do not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.stop()
        self._pool.join()

    def devices(self) -> Mapping[str, int]:
        """Return the devices, which do not change."""
        if self.kinds is None:
            self.kinds = kinds_here()
        return self.kinds

    def submit(self, asked: Turn, /) -> Future[list[TuneResult]]:
        """Hand the turn to the pool; a process that has to start first takes of its time."""
        ends = time.monotonic() + asked.budget.seconds
        order = replace(_order(asked, self.families, self.where), ends=ends)
        taken: Future[list[TuneResult]] = self._pool.schedule(self.take, args=(order,))
        return taken


@dataclass
class RayCrew:
    """The devices of a Ray cluster: resources that its nodes were started with.

    `address` is "auto" for the cluster this machine belongs to, "ray://host:port" for another,
    "local" for one of this machine alone that ends with the tuning.
    """

    address: str
    families: frozenset[str]
    where: str
    take: Take = orders.take
    own: Callable[[], dict[str, float]] = lambda: ray_resources()
    """The resources of a cluster that is made here."""
    _ray: Any = field(init=False)

    def __enter__(self) -> RayCrew:
        """Join the cluster.

        Raises:
            CrewError: Ray is not installed, or there is no cluster at the address.
        """
        self._ray = _needed("ray", "cluster")
        passed = {name: text for name, text in os.environ.items() if name.startswith("OCL")}
        options: dict[str, Any] = {"log_to_driver": False, "runtime_env": {"env_vars": passed}}
        if self.address == "local":
            options |= {"resources": self.own(), "include_dashboard": False}
        try:
            self._ray.init(self.address, **options)
        except (ConnectionError, ValueError) as error:
            raise CrewError(
                f"no Ray cluster at {self.address!r}: {error}. On each node: "
                'ray start [--head | --address HOST:PORT] --resources "$(oclgen ray-resources)"'
            ) from error
        self._remote = self._ray.remote(num_cpus=0, max_retries=0)(take)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ray.shutdown()

    def devices(self) -> Mapping[str, int]:
        """Return the cluster's devices as they are now: nodes come and go."""
        return {
            name.removeprefix(PREFIX): int(count)
            for name, count in self._ray.cluster_resources().items()
            if name.startswith(PREFIX)
        }

    def submit(self, asked: Turn, /) -> Future[list[TuneResult]]:
        """Hand the turn to Ray, which places it where a device of the kind is free."""
        order = _order(asked, self.families, self.where)
        placed = self._remote.options(resources={PREFIX + asked.kind: 1}).remote(self.take, order)
        taken: Future[list[TuneResult]] = placed.future()
        return taken


def spread(
    crew: LocalCrew | RayCrew,
    calls: Mapping[Problem, int],
    budget: Budget,
    ends: float,
    told: Callable[[str, TuneResult], None],
    trials: int = FEW,
) -> list[Lot]:
    """Tune every problem on every kind of device of a crew that was entered.

    Args:
        crew: Whose processes take the turns.
        calls: How often each problem is called: where all count the same, 1.
        budget: Trials per problem; its seconds are those that are left until `ends`.
        ends: The value of `time.monotonic` from which on no turn is begun.
        told: Is called after each turn with the kind of device and the result.
        trials: Of a turn at most. The next turn of a problem may be another process's, which
            computes inputs and references anew.

    Returns:
        The problems of each kind of device with their results. A `KeyboardInterrupt` ends the
        turns and is not passed on: their problems are "interrupted".

    Raises:
        CrewError: the crew has no device.
    """
    if not (devices := crew.devices()):
        raise CrewError("the crew has no OpenCL device; see `oclgen ray-resources`")
    lots = [Lot.of(kind, calls) for kind in devices]
    try:
        limited = replace(budget, seconds=ends - time.monotonic())
        Spread(crew, lots, limited, trials, told=told).run()
    except KeyboardInterrupt:
        for lot in lots:
            for task, result in zip(lot.tasks, lot.results, strict=True):
                if task.busy:
                    result.status = "interrupted"
    return lots


def take(by: Take, order: orders.Order) -> list[TuneResult]:
    """Let `by` take a turn: Ray wants a plain function, and shows its name."""
    return by(order)


def _order(asked: Turn, families: frozenset[str], where: str) -> orders.Order:
    keys = tuple(problem.key() for problem in asked.problems)
    return orders.Order(asked.kind, keys, asked.budget, asked.slice, families, where)


def ray_resources() -> dict[str, float]:
    """Return this machine's devices as a Ray node's resources."""
    return {PREFIX + kind: float(count) for kind, count in kinds_here().items()}


def _needed(package: str, extra: str) -> Any:
    """Import an optional package.

    Raises:
        CrewError: it is not installed.
    """
    try:
        return __import__(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise CrewError(f"{package} is not installed: pip install 'oclgen[{extra}]'") from error
