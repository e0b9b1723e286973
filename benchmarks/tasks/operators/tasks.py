"""What the sweep of operators draws: each kind, dtype and direction in turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from random import Random

from benchmarks.tasks.draw import log_uniform
from benchmarks.tasks.operators import (
    arithmetic,
    at_places,
    in_training,
    less_common,
    on_images,
)
from benchmarks.tasks.operators.case import LAYOUTS, Kind, Operator
from benchmarks.tasks.sweep import KIND
from benchmarks.tasks.task import Task
from oclgen.limits import Limits
from oclgen.problem import DTYPES

KINDS: dict[str, Kind] = {
    **arithmetic.KINDS,
    **on_images.KINDS,
    **at_places.KINDS,
    **in_training.KINDS,
    **less_common.KINDS,
}
MOST = {"cpu": 2**22, "gpu": 2**26, "other": 2**22}
"""Elements of a first tensor, at most."""
LEAST = 256
"""A case has at least 1 / LEAST of the most elements: a smaller one would time the host."""


def drawn(seed: int, count: int, limits: Limits, most_bytes: float) -> list[Operator]:
    """Return different cases, of each class in turn; a class is a kind, direction and dtype.

    Args:
        seed: equal seeds give equal cases on devices of a kind, and more of them go on.
        count: how many.
        limits: of the device: its kind decides sizes.
        most_bytes: of a case's first tensor and a result of its size.
    """
    random = Random(f"operators {seed}")
    order = [
        (name, direction, dtype)
        for name, kind in KINDS.items()
        for direction, dtype in product(("forward", "gradients"), kind.dtypes)
        if direction == "forward" or kind.has_gradients
    ]
    random.shuffle(order)
    found: dict[Operator, None] = {}
    while len(found) < count:
        for name, direction, dtype in order[: count - len(found)]:
            most = min(MOST[limits.kind], int(most_bytes / 2 / DTYPES[dtype]))
            found.setdefault(_one(name, direction, dtype, most, random))
    return list(found)


def tasks(seed: int, count: int, limits: Limits, most_bytes: float) -> Iterator[Task]:
    """Yield the cases that `drawn` returns; a row counts in its class and in wider groups.

    Args:
        seed: as in `drawn`.
        count: how many.
        limits: of the device.
        most_bytes: of a case.
    """
    for case in drawn(seed, count, limits, most_bytes):
        wider = (case.area, case.direction, case.dtype, case.layout)
        groups = (f"{case.direction} {case.kind}", *(f"all {name}" for name in wider))
        yield Task(KIND, case.key(), groups, 0, case.dtype, 0.0, case.bytes, {"case": case}, seed)


def _one(name: str, direction: str, dtype: str, most: int, random: Random) -> Operator:
    kind = KINDS[name]
    elements = int(kind.part * log_uniform(random, most // LEAST, most))
    shape, options = kind.draw(random, elements)
    while prod(shape) > 2 * most:
        shape, options = kind.draw(random, elements)
    layout = random.choice(LAYOUTS if len(shape) > 1 else ("rows", "cut out"))
    return Operator(name, kind.area, direction, dtype, shape, tuple(options.items()), layout)
