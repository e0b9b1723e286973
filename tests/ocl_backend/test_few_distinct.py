"""Distinct items of small tensors, which a processor's host looks for, as of large ones."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import place

GIVEN = {
    "floats": torch.randn(40, 50).round(),
    "turned": torch.randn(40, 50).mT.round(),
    "bf16": torch.randn(300).to(torch.bfloat16),
    "integers": torch.randint(-9, 9, (7, 5, 3)),
    "truths": torch.tensor([True, False, True]),
    "one": torch.tensor(4.0),
    "none": torch.empty(0, 3),
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("call", [torch.unique, torch.unique_consecutive])
@pytest.mark.parametrize("asked", [(False, False), (True, False), (False, True), (True, True)])
def test_items_places_and_counts(
    by_either: Any, name: str, call: Any, asked: tuple[bool, bool]
) -> None:
    x = GIVEN[name]
    inverse, counts = asked
    ours = call(x.to(place(by_either)), return_inverse=inverse, return_counts=counts)
    theirs = call(x, return_inverse=inverse, return_counts=counts)
    for found, wanted in zip(
        *((o,) if torch.is_tensor(o) else o for o in (ours, theirs)), strict=True
    ):
        assert found.device == place(by_either)
        assert found.dtype == wanted.dtype
        assert torch.equal(found.cpu(), wanted)


def test_a_processor_sorts_few_items_on_the_host(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("a GPU has its own memory")
    x = torch.randn(5216, device=place(device))
    with torch.ocl.profile(file=None) as seen:
        torch.unique(x)
        torch.ocl.synchronize(place(device))
    assert not [command.name for command in seen.commands if "sort" in command.name]
