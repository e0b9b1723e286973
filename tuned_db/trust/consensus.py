"""How many contributors measured a problem on a device model, and how many of them agree.

A contributor is an origin of claims, or all processes that write to this database; their races do
not count, because they compare few variants. Drivers of one model count together. It is only a
view: it changes nothing and chooses nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median

from tuned_db.choosing.raced import RACED
from tuned_db.storage.store import Store

HERE = "here"
"""The contributor that stands for all who write to this database."""


@dataclass(frozen=True)
class Agreement:
    """One problem on one device model.

    Attributes:
        device: the model's name.
        problem: its key.
        cache: the state of the caches.
        contributors: how many measured it.
        agree: how many of them found the same variant the fastest, the most that do.
        family: that variant's family.
        config: its config as JSON.
        ms: the median over contributors of their best times of that variant.
        spread: the largest of these times over the smallest.
    """

    device: str
    problem: str
    cache: str
    contributors: int
    agree: int
    family: str
    config: str
    ms: float
    spread: float


def agreements(store: Store, least: int = 2) -> list[Agreement]:
    """Return what contributors say, problems with the most contributors first.

    Args:
        store: what is read.
        least: contributors that a problem must have.

    Raises:
        DatabaseError: the store fails.
    """
    times: dict[tuple[str, str, str], dict[str, dict[tuple[str, str], float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for record in store.history():
        if record.origin == RACED:
            continue
        mine = times[record.device.name, record.problem, record.cache][record.origin or HERE]
        variant = record.family, record.config
        mine[variant] = min(record.ms, mine.get(variant, record.ms))
    found = [
        _agreement(place, by_contributor)
        for place, by_contributor in times.items()
        if len(by_contributor) >= least
    ]
    return sorted(found, key=lambda one: (-one.contributors, one.device, one.problem, one.cache))


def _agreement(
    place: tuple[str, str, str], by_contributor: dict[str, dict[tuple[str, str], float]]
) -> Agreement:
    best = Counter(min(mine, key=lambda v: (mine[v], v)) for mine in by_contributor.values())
    variant, agree = min(best.items(), key=lambda item: (-item[1], item[0]))
    known = [mine[variant] for mine in by_contributor.values() if variant in mine]
    spread = max(known) / min(known)
    return Agreement(*place, len(by_contributor), agree, *variant, median(known), spread)
