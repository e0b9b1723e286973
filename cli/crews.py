"""Crews for `search_spaces.spread`: processes of this machine, or of a Ray cluster.

Starting, killing, placing and restarting processes is pebble's and Ray's business.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from oclgen.opencl.exclusive import kind_of

from . import turn

if TYPE_CHECKING:
    from search_spaces.progress import TuneResult
    from search_spaces.spread import Turn

Take = Callable[[turn.Order], "TuneResult"]

PREFIX = "opencl_"
"""What the names of devices begin with among a Ray node's resources."""


def kinds_here() -> Counter[str]:
    """Return how many devices of each kind this machine has."""
    from oclgen.opencl.device import devices

    return Counter(kind_of(device.info) for device in devices())


@dataclass
class LocalCrew:
    """Processes of this machine, at most `workers` at a time; a killed one is replaced."""

    workers: int
    families: frozenset[str] | None
    where: str
    take: Take = turn.take
    _pool: Any = field(init=False)

    def __enter__(self) -> LocalCrew:
        """Start the pool; its processes start when they are needed."""
        pebble = _needed("pebble", "workers")
        spawn = multiprocessing.get_context("spawn")  # no OpenCL device survives a fork
        self._pool = pebble.ProcessPool(max_workers=self.workers, context=spawn)
        self._devices = kinds_here()
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
        """Return this machine's devices, which do not change."""
        return self._devices

    def submit(self, asked: Turn, /) -> Future[TuneResult]:
        """Hand the turn to the pool."""
        order = _order(asked, self.families, self.where)
        taken: Future[TuneResult] = self._pool.schedule(self.take, args=(order,))
        return taken


@dataclass
class RayCrew:
    """The devices of a Ray cluster: resources that its nodes were started with.

    `address` is "auto" for the cluster this machine belongs to, "ray://host:port" for another,
    "local" for one of this machine alone that ends with the tuning.
    """

    address: str
    families: frozenset[str] | None
    where: str
    take: Take = turn.take
    own: Callable[[], dict[str, float]] = lambda: ray_resources()
    """The resources of a cluster that is made here."""
    _ray: Any = field(init=False)

    def __enter__(self) -> RayCrew:
        """Join the cluster.

        Raises:
            click.ClickException: Ray is not installed, or there is no cluster at the address.
        """
        self._ray = _needed("ray", "cluster")
        passed = {name: text for name, text in os.environ.items() if name.startswith("OCL")}
        options: dict[str, Any] = {"log_to_driver": False, "runtime_env": {"env_vars": passed}}
        if self.address == "local":
            options |= {"resources": self.own(), "include_dashboard": False}
        try:
            self._ray.init(self.address, **options)
        except (ConnectionError, ValueError) as error:
            raise click.ClickException(
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

    def submit(self, asked: Turn, /) -> Future[TuneResult]:
        """Hand the turn to Ray, which places it where a device of the kind is free."""
        order = _order(asked, self.families, self.where)
        placed = self._remote.options(resources={PREFIX + asked.kind: 1}).remote(self.take, order)
        taken: Future[TuneResult] = placed.future()
        return taken


def take(by: Take, order: turn.Order) -> TuneResult:
    """Let `by` take a turn: Ray wants a plain function, and shows its name."""
    return by(order)


def _order(asked: Turn, families: frozenset[str] | None, where: str) -> turn.Order:
    key, budget = asked.problem.key(), asked.budget
    return turn.Order(asked.kind, key, budget, asked.slice, families, where)


def ray_resources() -> dict[str, float]:
    """Return this machine's devices as a Ray node's resources."""
    return {PREFIX + kind: float(count) for kind, count in kinds_here().items()}


@click.command("ray-resources")
def print_ray_resources() -> None:
    """Print this machine's devices for `ray start --resources`."""
    click.echo(json.dumps(ray_resources()))


def _needed(package: str, extra: str) -> Any:
    """Import an optional package.

    Raises:
        click.ClickException: it is not installed.
    """
    try:
        return __import__(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise click.ClickException(
            f"{package} is not installed: pip install 'oclgen[{extra}]'"
        ) from error
