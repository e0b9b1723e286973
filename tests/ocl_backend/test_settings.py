"""Settings hold at once, for calls that were recalled too: every one that there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.dispatch import settings
from ocl_backend.fusion import recall
from ocl_backend.runtime.launch import Prepared
from tests.ocl_backend.cpu_twin import place

CALLS = 5
"""Like calls before and after a change."""


def never_tunes(device: int, problem: Any) -> None:
    """Stand for a search that finds nothing."""


OTHER: dict[str, Any] = {
    "matmul.allow_tf32": True,
    "conv.allow_tf32": True,
    "sync_errors": True,
    "conv_accuracy": 1e-5,
    "race": True,
    "keep_weights": False,
    "fusion": False,
    "tune_first": never_tunes,
}
"""A value of each setting that is not its default."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Prepared]]:
    """What Python enqueues from now on; settings are as before afterwards."""
    calls: list[Prepared] = []
    plain = Prepared.__call__

    def noted(self: Prepared, *values: float) -> None:
        calls.append(self)
        plain(self, *values)

    monkeypatch.setattr(Prepared, "__call__", noted)
    before = {name: setting.value for name, setting in settings.ALL.items()}
    recall.forget()
    yield calls
    for name, value in before.items():
        if settings.ALL[name].value != value:
            settings.ALL[name].set(value)


def operators(device: Any) -> dict[str, Callable[[], Tensor]]:
    """Calls without an index, a product, a convolution and one that takes indices."""
    x = torch.randn(16, 16, device=place(device))
    image = torch.randn(1, 4, 8, 8, device=place(device))
    w = torch.randn(4, 4, 3, 3, device=place(device))
    index = torch.tensor([1, 3], device=place(device))
    return {
        "tanh": lambda: torch.tanh(x),
        "mm": lambda: torch.mm(x, x),
        "conv2d": lambda: torch.conv2d(image, w),
        "index_select": lambda: x.index_select(0, index),
    }


def repeated(device: Any, asked: list[Prepared], call: Callable[[], Tensor]) -> list[int]:
    """Return how often Python was asked by each of some like calls."""
    counts = []
    for _ in range(CALLS):
        asked.clear()
        call()
        torch.ocl.synchronize(device.index)
        counts.append(len(asked))
    return counts


@pytest.mark.parametrize("name", settings.ALL)
def test_no_call_is_recalled_past_a_change(device: Any, asked: list[Prepared], name: str) -> None:
    with torch.no_grad():
        for label, call in operators(device).items():
            setting = settings.ALL[name]
            before = setting.value
            first = call().cpu()
            assert repeated(device, asked, call)[-1] == 0, label
            setting.set(OTHER[name])
            counts = repeated(device, asked, call)
            assert counts[0] > 0, f"{label} was recalled after {name} had changed"
            assert torch.allclose(call().cpu(), first, rtol=1e-2, atol=1e-2)
            setting.set(before)
            assert repeated(device, asked, call)[0] > 0, label


def test_the_functions_of_torch_ocl_set_them(device: Any) -> None:
    assert set(settings.ALL) == set(OTHER)
    torch.ocl.set_fusion(False)
    torch.ocl.matmul.allow_tf32 = True
    assert not settings.ALL["fusion"].value
    assert settings.ALL["matmul.allow_tf32"].value
    assert torch.ocl.matmul.allow_tf32
    torch.ocl.set_fusion(True)
    torch.ocl.matmul.allow_tf32 = False
    with torch.ocl.fusion(False):
        assert not settings.FUSION.value
    assert settings.FUSION.value
    with pytest.raises(AttributeError):
        torch.ocl.matmul.allow_tf33 = True


def test_a_call_begun_before_a_change_teaches_nothing(device: Any, asked: list[Prepared]) -> None:
    x = torch.randn(9, 9, device=place(device))
    seen: list[bool] = []
    settings.FUSION.when_set(lambda on: seen.append(settings.FUSION.value is on))
    for _ in range(CALLS):
        torch.mm(x, x)
    settings.FUSION.set(False)
    settings.FUSION.set(True)
    assert seen == [True, True]
    asked.clear()
    torch.mm(x, x)
    torch.ocl.synchronize(device.index)
    assert asked
