"""Dtypes and numbers that the CPU refuses are refused; what it takes is computed as it does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from tests.ocl_backend.cpu_twin import agree, assert_same, ocl, place, refuse_alike

SIGNED = torch.tensor([[3, -2, 7], [-5, 0, 1]], dtype=torch.int16)
BYTES = torch.tensor([[255, 200, 7], [0, 128, 1]], dtype=torch.uint8)
BOOLS = torch.tensor([[True, False, True], [False, False, True]])
FLOATS = torch.tensor([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]])
ROW = torch.tensor([0, 1, 1])

REFUSED: dict[str, Callable[[], tuple[Any, ...]]] = {
    "gelu of integers": lambda: (functional.gelu, SIGNED),
    "gelu of many integers": lambda: (functional.gelu, SIGNED.repeat(100, 100)),
    "elu of bytes": lambda: (functional.elu, BYTES),
    "hypot of integers": lambda: (torch.hypot, BOOLS, SIGNED),
    "powers of bools": lambda: (torch.pow, BOOLS, BOOLS),
    "bools negated": lambda: (torch.neg, BOOLS),  # torch 2.14: NotImplementedError
    "products of bools": lambda: (torch.mm, BOOLS, BOOLS.T),
    "variances of integers": lambda: (torch.var, SIGNED),
    "the place of the least bool": lambda: (torch.argmin, BOOLS),
    "truth in integers": lambda: (
        lambda x: torch.any(x, 1, out=x.new_empty(2, dtype=torch.int32)), SIGNED
    ),
    "truth of many in integers": lambda: (
        lambda x: torch.any(x, 1, out=x.new_empty(0, dtype=torch.int32)), SIGNED.repeat(100, 100)
    ),
    "a bool subtracted as a number": lambda: (lambda x: torch.rsub(x, True), SIGNED),
    "values of another dtype put": lambda: (
        lambda x, y: x.put_(ROW.to(x.device), y), FLOATS.double(), FLOATS[0]
    ),
    "too large a number": lambda: (lambda x: x.fill_(1 << 40), SIGNED),
    "too large a number for many": lambda: (lambda x: x.fill_(1 << 40), SIGNED.repeat(100, 100)),
    "the least of many in another dtype": lambda: (
        lambda x: torch.amin(x, 1, out=x.new_empty(0, dtype=torch.float32)),
        SIGNED.repeat(100, 100),
    ),
    "an image resized to nothing": lambda: (
        lambda x: functional.interpolate(x, scale_factor=0.4, mode="bicubic"),
        FLOATS.view(1, 1, 2, 3),
    ),
    "scans in bools": lambda: (
        lambda x: torch.cumsum(x, 0, out=x.new_empty(0, dtype=torch.bool)), BOOLS
    ),
    "antialias of integers": lambda: (
        lambda x: functional.interpolate(x, size=(3, 2), mode="bilinear", antialias=True),
        SIGNED.int().view(1, 1, 2, 3),
    ),
    "group norm of many bytes": lambda: (
        lambda x: functional.group_norm(x, 2), BYTES.repeat(30, 40).view(1, 4, 30, 60)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_cpu_refuses(device: Any, name: str) -> None:
    function, *tensors = REFUSED[name]()
    refuse_alike(device, function, *tensors)


def test_a_convolution_that_the_cpu_lacks(device: Any) -> None:
    x = SIGNED.view(1, 1, 2, 3).to(place(device))
    with pytest.raises(NotImplementedError, match="'Short'"):
        functional.conv_transpose2d(x, x)


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8])
def test_a_call_without_items_does_not_speak_for_a_full_one(device: Any, kind: Any) -> None:
    def add(x: Any, rows: Any) -> Any:
        return x.index_add(0, rows, x, alpha=float("inf"))

    empty, full = torch.ones(0, 7, dtype=kind), torch.ones(2, 7, dtype=kind)
    assert_same(add(empty.to(place(device)), ROW[:0].to(place(device))), add(empty, ROW[:0]))
    refuse_alike(device, add, full, ROW[:2])


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_other_sizes_do_not_speak_for_a_size_of_0(device: Any, mode: str) -> None:
    def halved(x: Any) -> Any:
        return functional.interpolate(x, scale_factor=0.5, mode=mode)

    agree(device, halved, torch.ones(1, 2, 4))
    refuse_alike(device, halved, torch.ones(1, 2, 1))


def test_sixteen_bits_that_the_cpu_lacks_are_taken(device: Any) -> None:
    x = torch.randn(3, 5, dtype=torch.float16, device=place(device))
    assert torch.histc(x, 4).dtype is torch.float16


DIVISIONS = (torch.floor_divide, torch.remainder, torch.fmod)


@pytest.mark.parametrize("divide", DIVISIONS, ids=lambda divide: divide.__name__)
def test_a_zero_divisor_is_an_error_where_each_call_waits(device: Any, divide: Any) -> None:
    x = SIGNED.to(place(device))
    zero = torch.zeros_like(x)
    assert divide(x, zero).shape == x.shape
    torch.ocl.set_sync_errors(True)
    try:
        for _ in range(3):  # a call that is recalled is checked, too
            divide(x, zero + 3)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(x, SIGNED.to(place(device)))
        assert divide(x, zero.float()).isnan().any()
    finally:
        torch.ocl.set_sync_errors(False)


@pytest.mark.parametrize("divide", DIVISIONS, ids=lambda divide: divide.__name__)
def test_a_divisor_that_is_the_number_zero_is_an_error(device: Any, divide: Any) -> None:
    x = SIGNED.to(place(device))
    for _ in range(3):
        divide(x, 3)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(x, 0)
    assert divide(x.float(), 0).shape == x.shape
    assert not divide(x[:0], 0).numel()


@pytest.mark.parametrize("shapes", [((2, 0, 3), (2, 3, 4)), ((2, 2, 0), (2, 0, 4))], ids=str)
def test_products_of_nothing_may_differ_in_dtype(device: Any, shapes: Any) -> None:
    a, b = torch.ones(shapes[0]), torch.ones(shapes[1], dtype=torch.float64)
    agree(device, torch.bmm, a, b)


@pytest.mark.parametrize("size", [10, 10**7], ids=str)
def test_long_ranges_have_the_dtypes_of_short_ones(device: Any, size: int) -> None:
    with pytest.raises(NotImplementedError):
        torch.arange(size, dtype=torch.bool, device=place(device))
    with pytest.raises(NotImplementedError):
        torch.linspace(0, 1, size, dtype=torch.bool, device=place(device))


def test_a_result_of_the_small_call_is_not_warned_of(
    device: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """The call's own output, cut to the size of the small call, has another shape."""
    from ocl_backend.dispatch import accepted

    x = torch.ones(2, 8, 64, 64, device=place(device))
    outputs = {"out": x[..., ::2, ::2].clone(), "indices": x[..., ::2, ::2].long()}
    pool = torch.ops.aten.max_pool2d_with_indices.out
    accepted.ask(pool, (x, [3, 3], [2, 2], [1, 1]), outputs)
    assert "resized" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["sin", "sum", "svdvals"])
def test_a_resized_output_is_warned_of_once(device: Any, name: str) -> None:
    """The CPU, asked whether it takes the call, would warn too."""
    calls: dict[str, Any] = {
        "sin": torch.sin,
        "sum": lambda x, out: torch.sum(x, 1, out=out),
        "svdvals": lambda x, out: torch.linalg.svdvals(x, out=out),
    }
    x = torch.ones(3, 3, device=place(device))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        calls[name](x, out=x.new_empty(5))
    assert sum("was resized" in str(warning.message) for warning in heard) == 1


def test_a_mask_of_bytes_is_warned_of_once(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps the CPU's warnings until the program's call returns, past filters of Python."""
    from ocl_backend.dispatch import known_forms

    monkeypatch.setattr(known_forms.KnownForms, "has", lambda *_: False)
    x, mask = torch.ones(2, 3, dtype=torch.int16), torch.tensor([1, 0, 1], dtype=torch.uint8)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        chosen = x.to(place(device))[:, mask.to(place(device))]
    assert chosen.shape == (2, 2)
    assert sum("torch.uint8" in str(warning.message) for warning in heard) == 1


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64"])
def test_bits_of_unsigned_integers_and_a_number(device: Any, name: str) -> None:
    """torch hands a number to Python where a tensor is declared, and the CPU computes these."""
    x = torch.arange(6).to(getattr(torch, name))
    for call in (lambda x: x & 3, lambda x: 5 | x, lambda x: (x ^ 1).bitwise_and_(6)):
        assert_same(call(x.to(place(device))), call(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_outer_products_in_16_bits_are_rounded_as_on_the_cpu(device: Any, dtype: Any) -> None:
    torch.manual_seed(0)
    x, a, b = (torch.randn(size).to(dtype) for size in ((20, 30), (20,), (30,)))
    for numbers in ({"beta": 0.6, "alpha": 0.7}, {}, {"beta": 0, "alpha": 2}):
        ours = torch.addr(*(one.to(place(device)) for one in (x, a, b)), **numbers)
        assert torch.equal(ours.cpu(), torch.addr(x, a, b, **numbers)), numbers


def test_the_cpu_is_asked_once_for_a_form(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ocl_backend.dispatch import accepted

    asked: list[str] = []
    ask = accepted.ask

    def noted(overload: Any, *args: Any) -> None:
        asked.append(overload.name())
        ask(overload, *args)

    monkeypatch.setattr(accepted, "ask", noted)
    for size in (3, 4, 5, 6):  # calls of other sizes are not recalled
        torch.bitwise_left_shift(
            *[torch.ones(size, 2, 1, 3, dtype=torch.int16, device=place(device))] * 2
        )
    assert asked.count("aten::bitwise_left_shift.Tensor") <= 1


TAKEN: dict[str, Callable[[], tuple[Any, ...]]] = {
    "bytes shifted beyond their width": lambda: (lambda x: x >> 8, BYTES),
    "bytes shifted by bytes": lambda: (lambda x, y: x >> y, BYTES, BYTES),
    "integers shifted beyond their width": lambda: (lambda x: x >> 20, SIGNED),
    "bools shifted": lambda: (lambda x: (x >> 1) + (x << 1), BOOLS),
    "bools filled": lambda: (lambda x: x.clone().fill_(0.001), BOOLS),
    "bools filled with 256": lambda: (lambda x: x.clone().fill_(256), BOOLS),
    "bools filled by a mask": lambda: (lambda x: x.masked_fill(x, 0.5), BOOLS),
    "bools filled by rows": lambda: (lambda x: x.index_fill(1, ROW[:1].to(x.device), 0.5), BOOLS),
    "bools scattered": lambda: (lambda x: x.scatter(1, ROW[None].to(x.device), 0.5), BOOLS),
    "bools summed of fractions": lambda: (lambda x: x[:, :1].sum(1, dtype=torch.bool), FLOATS),
    "fractions of integers added": lambda: (
        lambda x: x.index_add(1, ROW.to(x.device), x, alpha=-2.7), SIGNED
    ),
    "sums in integers": lambda: (
        lambda x: torch.sum(x, 1, out=x.new_empty(0, dtype=torch.int32)), FLOATS
    ),
    "products in integers": lambda: (
        lambda x: torch.prod(x, 1, out=x.new_empty(0, dtype=torch.int64)), FLOATS
    ),
    "int32 wraps before int64": lambda: (
        lambda x: torch.mul(x, x, out=x.new_empty(0, dtype=torch.int64)),
        torch.tensor([100_000, -70_000, 3], dtype=torch.int32),
    ),
    "int32 wraps before float64": lambda: (
        lambda x: torch.add(x, x, out=x.new_empty(0, dtype=torch.float64)),
        torch.tensor([2**31 - 1, -(2**31), 3], dtype=torch.int32),
    ),
    "a scan of one bool": lambda: (
        lambda x: torch.cumprod(x, 0, out=x.new_empty(0, dtype=torch.bool)), torch.tensor(True)
    ),
    "a number beyond the tensor's dtype": lambda: (lambda x: (1 << 40) - x, SIGNED),
    "a divisor beyond the tensor's dtype": lambda: (lambda x: torch.div(x, 40000), BYTES),
    "a factor beyond halves": lambda: (lambda x: x * 1e10, FLOATS.half()),
    "softmax of no integers": lambda: (lambda x: x[:, :0].softmax(1), SIGNED),
    "NaN through hardsigmoid": lambda: (functional.hardsigmoid, FLOATS.log().half()),
    "NaN through hardswish": lambda: (functional.hardswish, FLOATS.log()),
    "divisors of the least integer": lambda: (
        lambda x: torch.lcm(x, -torch.ones_like(x)), torch.tensor([-(2**63), 6])
    ),
    "a loss of a wider target": lambda: (
        lambda x, y: functional.huber_loss(x, y, reduction="none"), FLOATS.half(), FLOATS.double()
    ),
    "squares of the largest": lambda: (
        lambda x: x.square(), torch.tensor([torch.finfo(torch.float64).max, 3.0]).double()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_cpu_takes(device: Any, name: str) -> None:
    function, *tensors = TAKEN[name]()
    agree(device, function, *tensors)


def test_a_vector_of_another_dtype_before_a_product(device: Any) -> None:
    """Torch before 2.13 computes in the product's dtype; later ones refuse the call."""
    tensors = torch.tensor([1.5, -3.7]), SIGNED.long(), ROW
    try:
        torch.addmv(*tensors)
    except RuntimeError:
        refuse_alike(device, torch.addmv, *tensors)
    else:
        agree(device, torch.addmv, *tensors)


def test_products_are_not_rounded_before_they_are_added(device: Any) -> None:
    a, b = (
        torch.tensor([1.0078125, 1.0]).bfloat16(),
        torch.tensor([1.0078125, -1.015625]).bfloat16(),
    )
    ours = torch.dot(a.to(place(device)), b.to(place(device)))
    assert float(ours) == 2.0**-14


@pytest.mark.parametrize("size", [5, 9, 12, 16])
def test_a_row_of_positions_made_with_another_step(device: Any, size: int) -> None:
    with torch.no_grad():  # both steps are one launch
        ours = torch.arange(-2, size - 2, device=place(device)).clamp(0, size - 4)
        assert_same(ours, torch.arange(-2, size - 2).clamp(0, size - 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_reach_a_leaf_on_the_cpu(device: Any, dtype: Any) -> None:
    leaf = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    (leaf.to(place(device)) * 2).sum().backward()
    assert leaf.grad is not None and leaf.grad.is_cpu
    assert_same(leaf.grad, torch.full((3, 4), 2.0, dtype=dtype))


MODES = [("bilinear", False), ("bicubic", False), ("bilinear", True), ("bicubic", True)]


@pytest.mark.parametrize("channels", [1, 3, 6])
@pytest.mark.parametrize(("mode", "antialias"), MODES)
def test_bytes_are_resized_as_on_the_cpu(
    device: Any, mode: str, antialias: bool, channels: int
) -> None:
    image = torch.randint(0, 256, (2, channels, 7, 11), dtype=torch.uint8)
    ocl.reset_fallbacks()
    for how in ({"size": (13, 4)}, {"size": (2, 30)}, {"scale_factor": (1.1, 0.6)}):
        given: dict[str, Any] = {**how, "mode": mode, "antialias": antialias}
        theirs = functional.interpolate(image, **given)
        assert torch.equal(functional.interpolate(image.to(place(device)), **given).cpu(), theirs)
    if not antialias:
        given = {"size": (9, 5), "mode": mode, "align_corners": True}
        theirs = functional.interpolate(image, **given)
        assert torch.equal(functional.interpolate(image.to(place(device)), **given).cpu(), theirs)
    assert ocl.fallbacks() == {}


def test_a_size_that_stays_is_not_resized(device: Any) -> None:
    image = torch.randn(1, 2, 5, 6)
    given: dict[str, Any] = {"scale_factor": (1.1, 1.7), "mode": "bicubic", "antialias": True}
    theirs = functional.interpolate(image, **given)
    assert_same(functional.interpolate(image.to(place(device)), **given), theirs)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resized_bytes_lie_as_on_the_cpu(device: Any, mode: str) -> None:
    image = torch.randint(0, 256, (2, 3, 14, 14), dtype=torch.uint8)
    last = image.contiguous(memory_format=torch.channels_last)
    views = (
        lambda x: x, lambda x: x[:, :, 2:-3, 1:-1], lambda x: x[:, :, ::2, ::2],
        lambda x: x[:1][0][None], lambda x: x.mT,
    )  # fmt: skip
    for dense in (image, last):
        for view in views:
            theirs = functional.interpolate(view(dense), size=(9, 5), mode=mode)
            ours = functional.interpolate(view(dense.to(place(device))), size=(9, 5), mode=mode)
            assert ours.stride() == theirs.stride()
            assert torch.equal(ours.cpu(), theirs)
