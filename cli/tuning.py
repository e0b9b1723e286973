"""Puts a tuner together from a device, its measuring process and a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oclgen.measuring.worker import Worker
from oclgen.opencl.exclusive import kind_of
from search_spaces.progress import Budget, Progress
from search_spaces.tune import Tuner
from tuned_db import Chooser, Store

if TYPE_CHECKING:
    from oclgen.opencl.device import Device


def tuner_for(
    device: Device,
    worker: Worker,
    store: Store,
    budget: Budget,
    families: frozenset[str] | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> Tuner:
    """Return the tuner that measures with `worker` and starts from what `store` knows."""
    return Tuner(
        limits=device.limits,
        measure=worker.measure,
        results=store.of(device.info, budget.cache),
        budget=budget,
        families=families,
        starts=Chooser(store, device.info, device.limits).starts,
        report=report,
        label=kind_of(device.info),
        build_ahead=worker.build_ahead,
        ahead=worker.builders,
        overlap=worker.overlaps,
    )
