"""Networks of `python -m benchmarks validate`: one that sees and two that write."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

from benchmarks.models.validate import CASES, check


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["unet", "llama", "mixtral"])
def test_a_network_does_what_it_does_on_the_cpu(device: Any, name: str) -> None:
    if device.index:
        pytest.skip("one device: these networks are for the operators they use")
    if name in ("llama", "mixtral"):
        pytest.importorskip("transformers")
    assert check(CASES[name], torch.device("ocl", device.index), 32)
    assert torch.ocl.fallbacks() == {}
