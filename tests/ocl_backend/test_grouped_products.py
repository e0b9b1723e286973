"""`grouped_mm` on GPUs: one launch reads on the device which rows are a group's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor
from torch.nn import functional

from ocl_backend.dispatch.tuned import reload_tuned
from tests.ocl_backend.cpu_twin import agree, check, ocl, place

ENDS = ((0, 9, 9, 41, 56), (56, 56, 56, 56, 56), (11, 22, 33, 44, 55))


@pytest.fixture
def on_gpu(as_gpu: Any) -> Iterator[Any]:
    """The device with a GPU's geometry, and no choice that another geometry made."""
    reload_tuned()
    yield as_gpu
    reload_tuned()


def grouped(x: Tensor, weights: Tensor, ends: tuple[int, ...]) -> Tensor:
    """The rows of x before the last end, each times its group's weights.

    Behind it torch writes nothing on the CPU, and neither do gradients.
    """
    offs = torch.tensor(ends, dtype=torch.int32, device=x.device)
    used = functional.pad(x[: ends[-1]], (0, 0, 0, len(x) - ends[-1]))
    return functional.grouped_mm(used, weights, offs=offs)[: ends[-1]]


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_groups_and_their_gradients_agree_with_the_cpu(
    on_gpu: Any, dtype: Any, ends: tuple[int, ...]
) -> None:
    torch.manual_seed(3)
    x, weights = torch.randn(56, 24).to(dtype), torch.randn(5, 40, 24).to(dtype)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-2
    for lies in ("mT", "contiguous"):
        given = weights if lies == "mT" else weights.mT.contiguous()
        turn = (lambda w: w.mT) if lies == "mT" else (lambda w: w)
        check(on_gpu, lambda x, w, t=turn: grouped(x, t(w), ends), x, given, tolerance=tolerance)


def test_views_are_read_where_they_lie_or_copied(on_gpu: Any) -> None:
    x, weights = torch.randn(56, 32), torch.randn(5, 24, 48)
    agree(on_gpu, lambda x, w: grouped(x[:, 4:28], w[..., :40], ENDS[0]), x, weights)
    agree(on_gpu, lambda x, w: grouped(x.t().contiguous().t()[:, :24], w, ENDS[0]), x, weights)
    rows = torch.randn(56, 40)

    def of_steps(x: Tensor, rows: Tensor) -> Tensor:
        ends = torch.tensor(ENDS[0], dtype=torch.int32, device=x.device)
        return functional.grouped_mm(x, rows, offs=ends)

    agree(on_gpu, lambda x, rows: of_steps(x.t(), rows), x, rows)
    agree(on_gpu, lambda x, rows: of_steps(x, rows), x.t().contiguous(), rows)


def test_other_numbers_of_rows_are_the_same_call(on_gpu: Any, monkeypatch: Any) -> None:
    """Neither a choice nor a text depends on what `offs` holds, nor on how many rows there are."""
    weights = torch.randn(5, 24, 40, device=place(on_gpu))
    x = torch.randn(64, 24, device=place(on_gpu))
    grouped(x, weights, ENDS[0])
    ocl.synchronize()
    built: list[str] = []
    plain = on_gpu.ahead.find

    def noted(text: str) -> Any:
        built.append(text)
        return plain(text)

    monkeypatch.setattr(on_gpu.ahead, "find", noted)
    for ends in ENDS[1:]:
        assert torch.isfinite(grouped(x[: 57 + len(ends)], weights, ends)).all()
    assert not [text for text in built if "gemm" in text]


def test_ends_that_are_wrong_read_no_other_memory(on_gpu: Any) -> None:
    weights = torch.randn(3, 24, 40, device=place(on_gpu))
    x = torch.randn(32, 24, device=place(on_gpu))
    right = grouped(x, weights, (10, 10, 32))
    offs = torch.tensor((10, -7, 4000), dtype=torch.int32, device=x.device)
    torch.testing.assert_close(functional.grouped_mm(x, weights, offs=offs), right)


def test_rows_of_no_group_are_zero(on_gpu: Any) -> None:
    weights = torch.randn(3, 24, 40, device=place(on_gpu))
    x = torch.randn(50, 24, device=place(on_gpu))
    offs = torch.tensor((4, 4, 13), dtype=torch.int32, device=x.device)
    result = functional.grouped_mm(x, weights, offs=offs)
    assert result[:13].abs().min() > 0
    assert result[13:].eq(0).all()


def test_what_torch_refuses_is_refused(on_gpu: Any) -> None:
    x, weights = torch.randn(32, 24), torch.randn(3, 24, 40)
    offs = torch.tensor((10, 10, 32), dtype=torch.int32)
    for wrong in (
        lambda to: functional.grouped_mm(to(x), to(weights)),
        lambda to: functional.grouped_mm(to(x), to(weights), offs=to(offs).long()),
        lambda to: functional.grouped_mm(to(x), to(weights[:, :16]), offs=to(offs)),
        lambda to: functional.grouped_mm(to(x), to(weights[:2]), offs=to(offs)),
        lambda to: functional.grouped_mm(to(x), to(weights), offs=to(offs), bias=to(x[0])),
    ):
        with pytest.raises((RuntimeError, ValueError)) as theirs:
            wrong(lambda tensor: tensor)
        with pytest.raises(theirs.type, match=r".") as ours:
            wrong(lambda tensor: tensor.to(place(on_gpu)))
        assert str(ours.value).partition("\n")[0] == str(theirs.value).partition("\n")[0]


def test_processors_run_the_loop(device: Any) -> None:
    x, weights = torch.randn(56, 24), torch.randn(5, 24, 40)
    check(device, lambda x, w: grouped(x, w, ENDS[0]), x, weights)
