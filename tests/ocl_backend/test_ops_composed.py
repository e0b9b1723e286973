"""Operators written in terms of others: bags, histograms, distances, resizing, unique slices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from ocl_backend.kernels import binning
from ocl_backend.ops.image import grid_sample
from tests.ocl_backend.cpu_twin import agree, assert_same, check, place, refuse_alike

torch.manual_seed(0)
X = torch.randn(7, 5)
IMAGE = torch.randn(2, 3, 6, 9)
VOLUME = torch.randn(2, 2, 4, 5, 6)
WORDS = torch.tensor([1, 4, 4, 0, 2, 6, 1, 3])
BAGS = torch.tensor([0, 3, 3, 6])

LEARNED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    f"bags by {mode}": (
        lambda t, i, o, m=mode: functional.embedding_bag(i, t, o, mode=m, padding_idx=2),
        (X, WORDS, BAGS),
    )
    for mode in ("sum", "mean", "max")
}
LEARNED |= {
    "weighted bags": (
        lambda t, w, i, o: functional.embedding_bag(i, t, o, mode="sum", per_sample_weights=w),
        (X, torch.rand(8), WORDS, BAGS),
    ),
    **{
        f"{p}-distances": (lambda a, b, p=p: torch.cdist(a, b, p) ** 2, (X, X[:3] + 1))
        for p in (1.0, 2.0, 3.0, float("inf"))
    },
    "pairs": (lambda x: functional.pdist(x, 1.5), (X,)),
    "bicubic": (lambda x: functional.interpolate(x, (9, 4), mode="bicubic"), (IMAGE,)),
    "bicubic by a factor": (
        lambda x: functional.interpolate(x, scale_factor=1.7, mode="bicubic"),
        (IMAGE,),
    ),
    "antialiased": (
        lambda x: functional.interpolate(x, (4, 5), mode="bilinear", antialias=True),
        (IMAGE,),
    ),
    "antialiased bicubic": (
        lambda x: functional.interpolate(x, (3, 12), mode="bicubic", antialias=True),
        (IMAGE,),
    ),
    "margins": (lambda x, t: functional.multi_margin_loss(x, t, p=2), (X, WORDS[1:8] % 5)),
    "many margins": (
        lambda x, t: functional.multilabel_margin_loss(x, t),
        (X[:2], torch.tensor([[3, 0, -1, 1, 2], [4, -1, 0, 0, 0]])),
    ),
}


COMPOSED = ("unique_slices", "histograms", "positions_of_a_known_number")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LEARNED)
def test_with_gradients(device: Any, name: str) -> None:
    function, tensors = LEARNED[name]
    check(device, function, *tensors, tolerance=2e-5)


def test_the_largest_of_a_bag_with_a_nan_is_no_zero(device: Any) -> None:
    table = torch.tensor([[torch.nan, 3], [1, torch.nan], [2, 0]])
    words, bags = torch.tensor([0, 2, 2, 1, 1]), torch.tensor([0, 3, 4])

    def maxima(t: Any, i: Any, o: Any, padding: int | None) -> Any:
        bags = functional.embedding_bag(i, t.requires_grad_(), o, mode="max", padding_idx=padding)
        return bags, *torch.autograd.grad(bags.sum(), t)

    for padding in (None, 0):
        agree(device, lambda t, i, o, p=padding: maxima(t, i, o, p), table, words, bags)


def test_bags_of_int32_are_scaled_by_frequency_as_those_of_int64(device: Any) -> None:
    def gradient(dtype: Any) -> Any:
        table = torch.ones(4, 3, device=place(device), requires_grad=True)
        words = torch.tensor([1, 1, 3, 0], dtype=dtype, device=place(device))
        bags = functional.embedding_bag(
            words, table, words.new_tensor([0, 2]), mode="sum", scale_grad_by_freq=True
        )
        return torch.autograd.grad(bags.sum(), table)[0].cpu()

    assert torch.equal(gradient(torch.int32), gradient(torch.int64))


def test_bags_scaled_by_how_often_a_row_is_used(device: Any) -> None:
    # torch's CPU divides by the wrong rows' counts here
    table = X.to(place(device)).requires_grad_()
    words, bags = WORDS.to(place(device)), BAGS.to(place(device))
    functional.embedding_bag(
        words, table, bags, mode="sum", scale_grad_by_freq=True
    ).sum().backward()
    assert table.grad[:, 0].tolist() == [1, 1, 1, 1, 1, 0, 1]


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_of_doubles_are_resized_in_double_precision(
    device: Any, mode: str, antialias: bool
) -> None:
    """Weights of float32 would leave 1e-7 of the result, and 1e-6 of its gradient."""
    check(
        device,
        lambda x: functional.interpolate(x, scale_factor=1.7, mode=mode, antialias=antialias),
        IMAGE.double(),
        tolerance=1e-12,
    )


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampling_at_a_grid(device: Any, mode: str, padding: str) -> None:
    for align in (False, True):
        check(
            device,
            lambda x, g, a=align: functional.grid_sample(x, g, mode, padding, a),
            IMAGE.mT,
            torch.rand(2, 4, 3, 2) * 3 - 1.5,
            tolerance=2e-5,
        )
    if mode != "bicubic":
        positions = torch.rand(2, 3, 2, 2, 3) * 3 - 1.5
        check(
            device,
            lambda x, g: functional.grid_sample(x, g, mode, padding, False),
            VOLUME,
            positions,
            tolerance=2e-5,
        )


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_cubic_samples_far_away_and_nowhere(device: Any, padding: str) -> None:
    """Not finite: NaN, and no gradient of the image; beyond a long: as beside the image.

    No float says in which image of a row of mirrors 1e19 lies.
    """
    far = [] if padding == "reflection" else [1e19, -1e19]
    places = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.25, *far])
    grid = torch.cartesian_prod(places, places).view(1, len(places), len(places), 2)

    def sample(x: Any, grid: Any) -> Any:
        x, grid = x.clone().requires_grad_(), grid.clone().requires_grad_()
        y = functional.grid_sample(x, grid, "bicubic", padding, False)
        of_x, of_grid = torch.autograd.grad(y.sum(), (x, grid))
        return (y, of_grid, of_x) if padding == "zeros" else (y, of_grid)

    agree(device, sample, IMAGE[:1].mT, grid, tolerance=2e-5)


def test_gradients_of_a_grid_are_refused_where_order_matters(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where additions are atomic, as on GPUs; owners of channels, on processors, keep the order."""
    image = IMAGE.to(place(device)).requires_grad_()
    grid = torch.zeros(2, 3, 3, 2, device=image.device)
    y = functional.grid_sample(image, grid, align_corners=False)
    torch.use_deterministic_algorithms(True)
    try:
        if device.limits.kind == "cpu":
            y.sum().backward(retain_graph=True)
        monkeypatch.setattr(grid_sample, "owned_parts", lambda *_: 0)
        with pytest.raises(RuntimeError, match="grid_sampler_2d_backward_ocl does not have"):
            y.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("shared", [False, True])
def test_many_samples_of_a_plane_are_added_up(
    device: Any, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """More than an owner lists at a time, of more channels than owners; and by atomics."""
    if shared:
        monkeypatch.setattr(grid_sample, "owned_parts", lambda *_: 0)
    x, grid = torch.randn(1, 19, 5, 6), torch.rand(1, 17, 19, 2) * 2 - 1
    check(device, lambda x, g: functional.grid_sample(x, g, align_corners=True), x, grid)
    check(device, lambda x: functional.grid_sample(x, grid.to(x.device), align_corners=True), x)


WINDOWS = "bartlett", "blackman", "hamming", "hann", "kaiser"


@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_windows_of_a_signal(device: Any, length: int) -> None:
    for name, periodic in product(WINDOWS, (False, True)):
        window = getattr(torch, f"{name}_window")
        agree(device, lambda x, w=window, p=periodic: w(length, p, device=x.device), X)
    agree(device, lambda x: torch.kaiser_window(length, True, 3.0, device=x.device), X)


def test_a_window_of_integers_is_refused(device: Any) -> None:
    for length, dtype in ((3, torch.int32), (-1, torch.float32)):
        refuse_alike(
            device,
            lambda x, n=length, d=dtype: torch.kaiser_window(n, dtype=d, device=x.device),
            X,
        )


def test_histograms(device: Any) -> None:
    agree(device, lambda x: x.histc(6), X)
    agree(device, lambda x: x.histogram(4, weight=x.abs(), density=True), X)
    agree(device, lambda x: x.histogram(torch.tensor([-1.0, 0.0, 0.1, 2.0], device=x.device)), X)
    agree(device, lambda x: torch.histogramdd(x[:, :2], [3, 4]).hist, X)


@pytest.mark.parametrize("shared", [False, True])
def test_many_items_are_counted_by_stretches(
    device: Any, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Of 50,001 items, which no number of work-items divides; and as devices share bins."""
    if shared:
        monkeypatch.setattr(binning, "_parts", lambda *_: 0)
    x = torch.linspace(-4, 4, 50_001)
    x[::1000] = torch.nan
    agree(device, lambda x: x.histc(8, -2.1, 3.3), x)
    agree(device, lambda x: x.half().float().histc(3000, -4, 4), x)
    whole = torch.arange(50_001) % 77
    agree(device, lambda x: x.bincount(minlength=90), whole)
    agree(device, lambda x: x.int().bincount(x.double() / 64), whole)
    agree(device, lambda x: x.bincount(x % 5 == 0), whole)
    agree(device, lambda x: x[:0].bincount(), whole)
    agree(device, lambda x: x[:0].bincount(x.double(), 3), whole)
    for narrow in (torch.float16, torch.bfloat16):  # their sums are doubles, as on the CPU
        agree(device, lambda x, narrow=narrow: x.bincount((x % 3).to(narrow)), whole)
    agree(device, lambda x: x[:1].bincount(minlength=200_000), whole)


HISTOGRAMS: dict[str, Any] = {
    "histc": lambda x: x.histc(4),
    "histogram": lambda x: x.histogram(4),
    "histogramdd": lambda x: torch.histogramdd(x.reshape(2, 2).flip(1), [3, 4]),
}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_items_without_a_range_are_refused_in_torchs_words(device: Any, name: str) -> None:
    refuse_alike(device, HISTOGRAMS[name], torch.tensor([1.5, float("inf"), 2.0, 3.0]))


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    ("bins", "low", "high", "wanted"),
    [
        (4, 0, 3, [1, 2, 1, 2]),
        (4, 0, 0, [1, 2, 1, 2]),  # from the smallest to the largest
        (3, 0, 3, [1, 2, 3]),
        (2, 1, 2, [2, 1]),  # what lies outside counts nowhere
        (5, -2, 200, [6, 0, 0, 0, 0]),
        (4, 0.9, 3.9, [1, 2, 1, 2]),  # bounds are truncated, as on CUDA
    ],
)
def test_histograms_of_integers(
    device: Any, dtype: Any, bins: int, low: float, high: float, wanted: list[int]
) -> None:
    x = torch.tensor([0, 1, 1, 2, 3, 3], dtype=dtype, device=place(device))
    assert_same(x.histc(bins, low, high), torch.tensor(wanted, dtype=dtype))


def test_histograms_of_no_integers_and_of_equal_ones(device: Any) -> None:
    empty = torch.zeros(0, dtype=torch.int32, device=place(device))
    assert empty.histc(3).tolist() == [0, 0, 0]
    assert torch.full_like(empty.resize_(5), 7).histc(3).tolist() == [0, 5, 0]
    for wrong in ((0, 0, 3), (3, 2, 1), (3, 0, float("inf")), (100, -(2**61), 2**61)):
        with pytest.raises(RuntimeError):
            empty.histc(*wrong)


def test_experts_of_a_mixture_get_their_tokens(device: Any) -> None:
    def mixture(x: Any, router: Any, up: Any, down: Any) -> Any:
        """Send each token to 2 of 4 experts, as transformers does with grouped products."""
        weights, chosen = torch.topk(torch.softmax(x @ router, -1), 2)
        experts = chosen.reshape(-1)
        order = torch.argsort(experts, stable=True)
        whole = experts.float() if x.is_cpu else experts.int()
        ends = torch.histc(whole, bins=4, min=0, max=3).cumsum(0, dtype=torch.int32)
        given = x[order // 2]
        hidden = functional.silu(functional.grouped_mm(given, up, offs=ends))
        out = functional.grouped_mm(hidden, down, offs=ends) * weights.reshape(-1)[order, None]
        return torch.zeros_like(x).index_add(0, order // 2, out)

    torch.manual_seed(0)
    shapes = (24, 16), (16, 4), (4, 16, 32), (4, 32, 16)
    given = [torch.randn(shape) for shape in shapes]
    ours = mixture(*(one.to(place(device)) for one in given))
    assert_same(ours, mixture(*given), 1e-4)


def test_unique_slices(device: Any) -> None:
    rows = torch.randint(0, 2, (20, 3))
    agree(device, lambda x: x.unique(dim=0, return_inverse=True, return_counts=True), rows)
    agree(device, lambda x: x.T.unique(dim=1, return_counts=True), rows)
    agree(device, lambda x: x.unique_consecutive(True, True, dim=0), rows)
    agree(device, lambda x: x.unique_consecutive(True, True), rows[:, 0])


def test_positions_of_a_known_number(device: Any) -> None:
    for size in (2, 30):
        agree(device, lambda x, n=size: torch.nonzero_static(x > 0, size=n, fill_value=-7), X)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(device: Any, reduce: str) -> None:
    for include_self in (True, False):
        agree(
            device,
            lambda x, i, s=include_self: x.index_reduce(1, i, x[:, :3], reduce, include_self=s),
            X,
            torch.tensor([4, 0, 4]),
        )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_resized_with_weights_that_are_none(device: Any, mode: str) -> None:
    image = torch.tensor([[0, 255], [255, 0]], dtype=torch.uint8).repeat(1, 1, 6, 5)
    theirs = functional.interpolate(image, (7, 4), mode=mode, antialias=True)
    ours = functional.interpolate(image.to(place(device)), (7, 4), mode=mode, antialias=True)
    assert (ours.cpu().int() - theirs.int()).abs().max() <= 1  # torch rounds between dimensions
    with pytest.raises(RuntimeError):
        functional.interpolate(image.int().to(place(device)), (7, 4), mode=mode, antialias=True)
