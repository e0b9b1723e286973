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


@pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_distances_of_rows(anywhere: Any, dtype: Any, p: float) -> None:
    torch.manual_seed(0)
    for shape in SHAPES:
        x, y = (torch.randn(shape).to(dtype) for _ in "xy")
        for keepdim in (False, True):
            given: Any = {"p": p, "eps": 0.01, "keepdim": keepdim}
            theirs = functional.pairwise_distance(x.double(), y.double(), **given).to(dtype)
            there = (x.to(place(anywhere)), y.to(place(anywhere)))
            found = functional.pairwise_distance(*there, **given).cpu()
            assert found.dtype is dtype
            torch.testing.assert_close(found, theirs, rtol=3 * BOUNDS[dtype], atol=0)
    agree(anywhere, lambda x, y: functional.pairwise_distance(x[0], y), *torch.randn(2, 5, 9))
    agree(anywhere, lambda x, y: functional.pairwise_distance(x[:0], y[:0]), *torch.randn(2, 5, 9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_cosine_losses(anywhere: Any, dtype: Any) -> None:
    torch.manual_seed(0)
    for rows, items in ((70, 33), (3, 549), (1, 4)):
        x, y = (torch.randn(rows, items).to(dtype) for _ in "xy")
        target = torch.randint(-1, 2, (rows,))
        for reduction in ("mean", "sum", "none"):
            for labels in (target, target.float()):
                given: Any = {"margin": -0.1, "reduction": reduction}
                theirs = functional.cosine_embedding_loss(
                    x.double(), y.double(), labels.double(), **given
                ).to(dtype)
                there = (t.to(place(anywhere)) for t in (x, y, labels))
                found = functional.cosine_embedding_loss(*there, **given)
                bound = 4 * BOUNDS[dtype]
                torch.testing.assert_close(found.cpu(), theirs, rtol=bound, atol=bound)
    nothing = torch.tensor([[float("nan"), 1.0]]).repeat(2, 1)
    agree(anywhere, lambda x, t: functional.cosine_embedding_loss(x, x, t), nothing, target[:1])


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("pairwise_distance", ["distance_rows"]),
        ("cosine_embedding_loss", ["cosine_loss_rows", "reduce_mean"]),
    ],
)
def test_comparisons_of_rows_are_few_launches(device: Any, name: str, names: list[str]) -> None:
    x, y = (torch.randn(50, 124, device=place(device)) for _ in "xy")
    given = [torch.ones(50, device=x.device)] if name == "cosine_embedding_loss" else []
    getattr(functional, name)(x, y, *given)
    with torch.ocl.profile(file=None) as seen:
        getattr(functional, name)(x, y, *given)
        torch.ocl.synchronize(place(device))
    assert [command.name for command in seen.commands] == names


def test_cosines_are_one_launch(anywhere: Any) -> None:
    x, y = (torch.randn(50, 123, device=place(anywhere)) for _ in "xy")
    with torch.ocl.profile(file=None) as seen:
        functional.cosine_similarity(x, y)
        torch.ocl.synchronize(place(anywhere))
    assert [command.name for command in seen.commands] == ["cosine_rows"]


def test_refused_as_by_the_cpu(device: Any) -> None:
    x = torch.randn(3, 4, device=place(device))
    for dim in (2, -3):
        with pytest.raises(IndexError, match="Dimension out of range"):
            functional.cosine_similarity(x, x, dim)
    with pytest.raises(RuntimeError, match="must match"):
        functional.cosine_similarity(x, x[:, :3])
