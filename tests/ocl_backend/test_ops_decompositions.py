"""Losses, padding and resampling that are composed of other operators, with gradients."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._decomp import decompositions
from torch.nn import functional

from tests.ocl_backend.cpu_twin import agree, assert_same, check, place
from tests.ocl_backend.fusion_cases import names

torch.manual_seed(0)
X = torch.randn(3, 5, 6, 8)
TARGET = torch.rand(3, 5, 6, 8)

LOSSES: dict[str, Any] = {
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "huber": functional.huber_loss,
    "cross entropy of two": lambda x, t, reduction: functional.binary_cross_entropy(
        x.sigmoid(), t, reduction=reduction
    ),
    "with logits": functional.binary_cross_entropy_with_logits,
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(device: Any, name: str, reduction: str) -> None:
    target = TARGET.to(f"ocl:{device.index}")
    by_device = {"cpu": TARGET, "ocl": target}
    check(
        device,
        lambda x: LOSSES[name](x, by_device[x.device.type], reduction=reduction),
        X,
        tolerance=1e-4,
    )


RESHAPED: dict[str, Any] = {
    **{
        f"pad {mode}": lambda x, mode=mode: functional.pad(x, (2, 1, 1, 2), mode=mode)
        for mode in ("reflect", "replicate", "constant", "circular")
    },
    **{
        f"twice {mode}": lambda x, mode=mode: functional.interpolate(x, scale_factor=2, mode=mode)
        for mode in ("nearest", "bilinear", "nearest-exact")
    },
    "other sizes": lambda x: functional.interpolate(x, size=(11, 5)),
    "corners": lambda x: functional.interpolate(
        x, size=(11, 5), mode="bilinear", align_corners=True
    ),
    "line": lambda x: functional.interpolate(x[0], size=13, mode="linear"),
    "unfold": lambda x: functional.unfold(x, 3),
    "fold": lambda x: functional.fold(functional.unfold(x, 3), (6, 8), 3),
    "unfold, long rows": lambda x: functional.unfold(
        x.reshape(1, 2, 12, 30), (3, 2), padding=(1, 9), dilation=(2, 3)
    ),
    "unfold by steps": lambda x: functional.unfold(x.mT, 2, stride=(1, 3), padding=1),
    "fold by steps": lambda x: functional.fold(
        x.reshape(2, 2 * 4 * 5, 9), (8, 13), (4, 5), padding=1, stride=(3, 5)
    ),
    "fold of long rows": lambda x: functional.fold(
        functional.unfold(x.reshape(1, 1, 2, 360), (2, 3), padding=1), (2, 360), (2, 3), padding=1
    ),
    "fold, spread": lambda x: functional.fold(
        functional.unfold(x, 3, dilation=2, padding=2).mT.contiguous().mT, (6, 8), 3, 2, 2
    ),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x.reshape(3, 20, 6, 2), 2),
    "glu": lambda x: functional.glu(x, -1),
    "group_norm": lambda x: functional.group_norm(x, 5),
    "normalize": lambda x: functional.normalize(x, dim=1),
    "prelu": lambda x: functional.prelu(x, x[0, :, 0, 0]),
    "cross_entropy": lambda x: functional.cross_entropy(x[:, :, 0, 0], x[0, 0, 0, :3].long().abs()),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", RESHAPED)
def test_composed_operators(device: Any, name: str) -> None:
    check(device, RESHAPED[name], X, tolerance=1e-4)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 2, 2)])
def test_weights_of_classes_may_be_a_column(
    device: Any, shape: tuple[int, ...], reduction: str
) -> None:
    torch.manual_seed(0)
    x, table = torch.randn(shape), torch.rand(3, 2)
    target = torch.randint(0, 3, (shape[0], *shape[2:]))

    def loss(x: Any) -> Any:
        where = x.device
        weight = table.to(where)[:, 1]
        return functional.nll_loss(x, target.to(where), weight, reduction=reduction)

    check(device, loss, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bins", [1, 7, 64])
def test_histograms_count_items_on_an_edge_to_its_right(device: Any, bins: int, dtype: Any) -> None:
    """The device guesses a bin and steps to the right one; edges of sevenths are rounded."""
    torch.manual_seed(0)
    edges = torch.linspace(-1, 2, bins + 1, dtype=dtype)
    ends = torch.tensor([-torch.inf, torch.inf, torch.nan, -1, 2, -1.001, 2.001], dtype=dtype)
    x = torch.cat([edges, edges.nextafter(edges + 1), edges.nextafter(edges - 1), ends])
    x = torch.cat([x, torch.randn(5000, dtype=dtype)])
    weight = torch.rand(len(x), dtype=dtype)
    cases: list[dict[str, Any]] = [{}, {"weight": weight}, {"density": True}]
    for options in cases:
        there = {k: v.to(place(device)) if k == "weight" else v for k, v in options.items()}
        ours, our_edges = torch.histogram(x.to(place(device)), bins, range=(-1.0, 2.0), **there)
        theirs, _ = torch.histogram(x, our_edges.cpu(), **options)
        assert_same(ours, theirs)


def test_counting_and_searching(device: Any) -> None:
    agree(device, lambda x: x.round().unique_consecutive(return_counts=True), X)
    agree(device, lambda x: torch.isin(x.round(), x[0, 0, 0].round()), X)
    agree(device, lambda x: torch.cdist(x[0, 0], x[0, 1]), X, tolerance=1e-4)
    agree(device, lambda x: x[0, 0].trace(), X)


@pytest.mark.parametrize("p", [0, 1, 2, torch.inf])
def test_rows_without_items_are_not_apart(device: Any, p: float) -> None:
    agree(device, lambda a: torch.cdist(a, a[:2], p), torch.zeros(3, 0))
    agree(device, lambda a: torch.pdist(a, p), torch.zeros(3, 0))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_repeated_positions_have_the_counts_dtype(device: Any, dtype: Any) -> None:
    for counts in ([1, 0, 2], []):
        agree(device, torch.repeat_interleave, torch.tensor(counts, dtype=dtype))
    counts = torch.tensor([1, 0, 2], dtype=dtype)
    agree(device, lambda x, n: x.repeat_interleave(n, dim=0), torch.eye(3), counts)
    many = torch.randint(0, 4, (9001,), dtype=dtype, generator=torch.Generator().manual_seed(1))
    agree(device, torch.repeat_interleave, many)
    agree(device, lambda n: torch.repeat_interleave(n, output_size=int(n.sum())), many)


def test_a_processor_writes_what_counts_repeat(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs look each position up")
    counts = torch.ones(5000, dtype=torch.int64, device=place(device))
    assert "repeat_by_counts_kernel" in names(lambda: counts.repeat_interleave(counts))


def test_a_long_concatenation_of_odd_parts_is_walked_by_vectors(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("GPUs walk item by item")

    def gradient(x: Any) -> Any:
        with torch.no_grad():
            return decompositions.glu_backward(x[: x.numel() // 2], x, 0)

    for items, is_one in ((2 * 5001, False), (2 * 5008, True), (2 * 101, True)):
        x = torch.randn(items)
        agree(device, gradient, x)
        there = x.to(place(device))
        assert (len(names(partial(gradient, there))) == 1) == is_one, items


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (torch.nn.ReflectionPad1d((2, 1)), (1, 1, 2)),  # would take items from outside
        (torch.nn.ReflectionPad2d((1, 1, 3, 0)), (1, 1, 2, 3)),
        (torch.nn.ReflectionPad2d(2), (3, 0, 10, 10)),
        (torch.nn.ReplicationPad3d(2), (3, 0, 4, 4, 4)),
    ],
)
def test_paddings_refuse_what_the_cpu_refuses(device: Any, module: Any, shape: Any) -> None:
    with pytest.raises(RuntimeError) as theirs:
        module(torch.ones(shape))
    with pytest.raises(RuntimeError, match=re.escape(str(theirs.value).splitlines()[0])):
        module(torch.ones(shape, device=place(device)))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_classes_of_any_dtype(device: Any, dtype: Any, reduction: str) -> None:
    x, classes = torch.randn(10, 4).to(dtype), torch.arange(10) % 4
    home = x.to(place(device)), classes.to(place(device))
    loss = functional.cross_entropy(*home, reduction=reduction)
    assert_same(loss, functional.cross_entropy(x, classes, reduction=reduction), tolerance=2e-2)


def test_bytes_name_classes_too(device: Any) -> None:
    x, classes = torch.randn(10, 4), torch.arange(10, dtype=torch.uint8) % 4
    home = x.to(place(device)).requires_grad_()
    loss = functional.nll_loss(home, classes.to(place(device)))
    loss.backward()
    assert loss.item() == pytest.approx(functional.nll_loss(x, classes).item(), rel=1e-5)
    assert torch.equal(home.grad.cpu() != 0, functional.one_hot(classes.long(), 4).bool())


def test_losses_go_to_outputs_that_are_columns(device: Any) -> None:
    where, aten = place(device), torch.ops.aten
    x, classes = torch.randn(6, 5).log_softmax(1), torch.randint(0, 5, (6,))
    home, target, none = x.to(where), classes.to(where), torch.zeros((), device=where)
    losses, slopes = torch.full((6, 2), 7.0, device=where), torch.full((6, 10), 7.0, device=where)
    given = home, target, None, 0, -100
    aten.nll_loss_forward.output(*given, output=losses[:, 1], total_weight=none)
    assert torch.equal(losses.cpu()[:, 1], functional.nll_loss(x, classes, reduction="none"))
    ones = torch.ones(6, device=where)
    aten.nll_loss_backward.grad_input(ones, *given, none, grad_input=slopes[:, 1::2])
    assert torch.equal(slopes.cpu()[:, 1::2], -functional.one_hot(classes, 5).float())
    assert torch.equal(losses.cpu()[:, 0], torch.full((6,), 7.0))
    assert torch.equal(slopes.cpu()[:, ::2], torch.full((6, 5), 7.0))
