"""One turn of a tuning in a process of its own, on this machine or another one.

Everything comes in as plain values and goes out as one; what was found is in the database.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from oclgen.keys import parse_key

if TYPE_CHECKING:
    from search_spaces.progress import Budget, TuneResult


@dataclass(frozen=True)
class Order:
    """A turn as it travels: kind of device, problem's key, budget, slice, families, database."""

    kind: str
    problem: str
    budget: Budget
    slice: int
    families: frozenset[str] | None
    where: str


def take(order: Order) -> TuneResult:
    """Take a turn on a free device of the kind that is asked for.

    The best variant's config comes back as a dict: its class may not be importable elsewhere.

    Raises:
        DeviceError: this machine has no such device any more.
    """
    from oclgen.measuring import peak
    from oclgen.measuring.worker import Worker
    from oclgen.opencl.device import DeviceError, devices
    from oclgen.opencl.exclusive import exclusive, kind_of, locks
    from search_spaces.spread import Turn
    from tuned_db import open_store

    from .tuning import tuner_for

    mine = [one for one in locks(devices()) if kind_of(one[0].info) == order.kind]
    if not mine:
        raise DeviceError(f"no device of kind {order.kind} is left here; see `oclgen devices`")
    turn = Turn(order.kind, parse_key(order.problem), order.budget, order.slice, lambda _: None)
    with (
        exclusive(mine) as device,
        Worker(device.index, device.info, cache=order.budget.cache) as worker,
    ):
        store = open_store(order.where)
        best = peak.measure(device)
        store.of(device.info).note_peak(best.gflops, best.gbytes)
        result = turn.take(tuner_for(device, worker, store, order.budget, order.families))
    if result.best is not None:
        result.best = replace(result.best, config=asdict(result.best.config))
    return result
