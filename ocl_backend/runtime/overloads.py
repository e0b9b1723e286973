"""torch's operators by name: their overloads, and implementations that are made of one.

To ask torch for an overload makes an object of it, 0.05 ms each: what only needs names asks here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch


class OfOverload(NamedTuple):
    """An implementation that is made of the overload that it serves, at its first call."""

    make: Callable[[Any], Callable[..., Any]]


def parts(name: str) -> tuple[str, str, str]:
    """Return namespace, name and label of an overload; "" is the default one's label."""
    space, _, rest = name.partition("::")
    base, _, label = rest.partition(".")
    return space, base, label


def overload(name: str) -> Any:
    """Return torch's overload of this name, such as `aten::add.Tensor`."""
    space, base, label = parts(name)
    return getattr(getattr(getattr(torch.ops, space), base), label or "default")


def labels(name: str) -> tuple[str, ...]:
    """Return the labels of an operator's overloads, sorted, "" for the default one.

    Args:
        name: of the operator, such as `aten::add`; one that this torch lacks has none.
    """
    return tuple(sorted(_labels().get(name, ())))


@cache
def _labels() -> dict[str, list[str]]:
    found = defaultdict(list)
    for name in torch._C._dispatch_get_all_op_names():
        operator, _, label = name.partition(".")
        found[operator].append(label)
    return dict(found)


def registered(key: str) -> frozenset[str]:
    """Return the names of the overloads that have a kernel of their own for a dispatch key."""
    return frozenset(torch._C._dispatch_get_registrations_for_dispatch_key(key))
