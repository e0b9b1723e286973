"""The names of torch.ocl: the table beside torch.cuda, aliases, torch.backends.ocl."""

from __future__ import annotations

import gc
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import place

ROOT = Path(__file__).parents[2]


def tool() -> Any:
    """docs/tools is no package: MkDocs reads its files one by one."""
    path = ROOT / "docs/tools/torch_ocl_page.py"
    spec = importlib.util.spec_from_file_location("torch_ocl_page", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="torch.cuda has other names in other versions"
)
def test_the_table_beside_torch_cuda_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    page = tool()
    assert page.PAGE.read_text() == page.page(torch.ocl), f"run python {page.__file__}"
    monkeypatch.delitem(page.MISSING, next(iter(page.MISSING)))
    with pytest.raises(ValueError, match=r"torch\.ocl\.MemPool: present False"):
        page.page(torch.ocl)


def test_aliases_are_torchs_own(device: Any) -> None:
    with pytest.raises(torch.ocl.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=place(device))
    assert torch.ocl.AcceleratorError is torch.AcceleratorError
    assert torch.ocl.memory.memory_allocated is torch.ocl.memory_allocated
    assert torch.ocl.random.manual_seed is torch.ocl.manual_seed
    assert torch.ocl.streams.Stream is torch.ocl.Stream
    assert torch.ocl.init() is torch.ocl.ipc_collect() is None
    assert not torch.ocl.is_current_stream_capturing()


def test_programs_of_cuda_amp_train_here(device: Any) -> None:
    class Doubled(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        @torch.ocl.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        @torch.ocl.amp.custom_bwd
        def backward(ctx: Any, grad: Any) -> Any:
            return 2 * grad

    layer = torch.nn.Linear(4, 3, device=place(device))
    before = layer.weight.detach().cpu()
    optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=1.0), torch.ocl.amp.GradScaler()
    with torch.ocl.amp.autocast(dtype=torch.bfloat16):
        out = layer(torch.ones(2, 4, device=place(device)))
        doubled = Doubled.apply(out)
    assert (out.dtype, doubled.dtype) == (torch.bfloat16, torch.float32)
    scaler.scale(doubled.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(layer.weight.cpu(), before - 4)
    with torch.ocl.amp.autocast(enabled=False):
        assert layer(torch.ones(2, 4, device=place(device))).dtype is torch.float32


def test_a_stream_context_sets_the_stream_and_restores_it(device: Any) -> None:
    before = torch.ocl.current_stream(device.index)
    chosen = torch.ocl.Stream(device.index)
    with torch.ocl.StreamContext(chosen):
        assert torch.ocl.current_stream(device.index) == chosen
    assert torch.ocl.current_stream(device.index) == before
    with torch.ocl.stream(None):
        assert torch.ocl.current_stream(device.index) == before


def test_figures_are_nested_by_the_dots_of_their_names(device: Any) -> None:
    gc.collect()  # cycles that earlier tests left would give memory back between the two readings
    held = torch.ones(1000, device=place(device))
    flat = torch.ocl.memory_stats(device.index)
    nested = torch.ocl.memory_stats_as_nested_dict(device.index)
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"]
    assert held.nbytes <= torch.ocl.device_memory_used(device.index)
    torch.ocl.reset_max_memory_allocated(device.index)
    now = torch.ocl.memory_allocated(device.index)
    assert torch.ocl.max_memory_allocated(device.index) == now


@pytest.mark.parametrize(
    ("name", "figure", "told"),
    [
        ("temperature", "celsius", 42),
        ("clock_rate", "mhz", 42),
        ("utilization", "busy_percent", 42),
        ("memory_usage", "memory_busy_percent", 42),
        ("power_draw", "watts", 41_600),
    ],
)
def test_conditions_are_told_or_refused(
    name: str, figure: str, told: int, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ocl_backend.runtime import condition

    found = {figure: 41.6}
    monkeypatch.setattr(condition, "conditions", lambda info, handle, figures: found)
    assert getattr(torch.ocl, name)(device.index) == told
    found.clear()
    with pytest.raises(NotImplementedError, match=f"does not tell its {figure}"):
        getattr(torch.ocl, name)(device.index)


def test_backends_have_the_settings_of_the_device() -> None:
    backend = importlib.import_module("torch.backends.ocl")

    assert backend.matmul is torch.ocl.matmul
    assert backend.conv is torch.ocl.conv
    assert backend.is_built()
    assert backend.is_available() == torch.ocl.is_available()
