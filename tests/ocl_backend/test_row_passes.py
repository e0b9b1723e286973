"""Sums over rows by one launch, with a processor's geometry and a GPU's: cosines of angles."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from tests.ocl_backend.cpu_twin import agree, check, place

BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SHAPES = ((7, 549), (3, 5, 64), (1, 4_099), (70, 31), (2, 1), (9, 1_024))


def exact(x: Any, y: Any, dim: int, eps: float = 1e-8) -> Any:
    """Return the cosines of doubles, in x's dtype."""
    return functional.cosine_similarity(x.cpu().double(), y.cpu().double(), dim, eps).to(x.dtype)


@pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cosines_of_rows(anywhere: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(*shape[:-1], shape[-1] + 3).to(dtype).to(place(anywhere)) for _ in "xy")
    for start in (0, 1):
        a, b = x[..., start : start + shape[-1]], y[..., 1 : 1 + shape[-1]]
        found = functional.cosine_similarity(a, b, -1)
        torch.testing.assert_close(
            found.cpu(), exact(a, b, -1), rtol=BOUNDS[dtype], atol=BOUNDS[dtype]
        )


def test_cosines_of_expanded_and_turned_rows(anywhere: Any) -> None:
    torch.manual_seed(0)
    agree(
        anywhere,
        lambda x, y: (
            functional.cosine_similarity(x[:, None], y[None], -1),
            functional.cosine_similarity(x, y[0], 1),
            functional.cosine_similarity(x.T, y[:13].T, 0),
            functional.cosine_similarity(x.view(13, 5, 8).transpose(0, 1), y[:5, None, :8], 2),
            functional.cosine_similarity(x, y[:1], 0),
            functional.cosine_similarity(x[:0], y[:0], 1),
        ),
        torch.randn(13, 40),
        torch.randn(17, 40),
    )


def test_the_least_norm_and_what_is_no_number(anywhere: Any) -> None:
    x = torch.tensor([[0.0, 0.0], [1e-9, 0.0], [float("nan"), 1.0], [3.0, 4.0]])
    for eps in (1e-8, 0.5, 10.0):
        agree(anywhere, lambda x, e=eps: functional.cosine_similarity(x, x.flip(1), 1, e), x)


def test_gradients_and_transforms_are_torchs(device: Any) -> None:
    x, y = torch.randn(5, 33), torch.randn(5, 33)
    check(device, functional.cosine_similarity, x, y)
    each = torch.func.vmap(lambda a, b: functional.cosine_similarity(a, b, 0))
    agree(device, each, x, y)
    agree(device, lambda x, y: functional.cosine_similarity(x, y.double()), x, y)


def test_cosines_are_one_launch(anywhere: Any) -> None:
    x, y = (torch.randn(50, 123, device=place(anywhere)) for _ in "xy")
    with torch.ocl.profile(file=None) as seen:
        functional.cosine_similarity(x, y)
        torch.ocl.synchronize()
    assert [command.name for command in seen.commands] == ["cosine_rows"]


def test_refused_as_by_the_cpu(device: Any) -> None:
    x = torch.randn(3, 4, device=place(device))
    for dim in (2, -3):
        with pytest.raises(IndexError, match="Dimension out of range"):
            functional.cosine_similarity(x, x, dim)
    with pytest.raises(RuntimeError, match="must match"):
        functional.cosine_similarity(x, x[:, :3])
