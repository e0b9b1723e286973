"""Every operator of Core ATen reaches the device: by a kernel, a composite one or a decomposition.

What each computes is compared elsewhere; here none may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401  (registers the device)
from tests.conformance import lists

COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")


def core() -> Iterator[Any]:
    """Yield every overload that torch tags as core."""
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, label = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::") and hasattr(torch.ops.aten, packet):
            overload = getattr(getattr(torch.ops.aten, packet), label or "default", None)
            if overload is not None and torch.Tag.core in overload.tags:
                yield overload


def has(overload: Any, key: str) -> bool:
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key)
    except RuntimeError:  # an overload of TorchScript's, unknown to the dispatcher
        return False


def reaches_the_device(overload: Any) -> bool:
    """Whether there is a kernel, or a composition; torch's structured ones end in another form."""
    if has(overload, "PrivateUse1"):
        return True
    if not has(overload, "CompositeExplicitAutogradNonFunctional"):
        return any(has(overload, key) for key in COMPOSITE)
    packet = overload._overloadpacket
    forms = [getattr(packet, label) for label in packet.overloads()]
    structured = any(has(form, "CPU") for form in forms)
    return not structured or any(has(form, "PrivateUse1") for form in forms)


def test_core_aten_is_complete() -> None:
    overloads = list(core())
    assert len(overloads) > 180
    missing = {one.name() for one in overloads if not reaches_the_device(one)}
    undeclared = {name for name in missing if lists.entry("fallbacks", name) is None}
    assert undeclared == set(), "neither kernel nor composition, and no reason in fallbacks.toml"
