"""Pointwise operators: every overload of the table against torch's CPU, every layout, promotion."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.dtypes import DTYPES
from ocl_backend.kernels import elementwise
from ocl_backend.kernels.special_table import SPECIAL
from ocl_backend.ops.math import pointwise, pointwise_kernels
from ocl_backend.ops.math.pointwise import OPERATORS
from tests.ocl_backend.cpu_twin import agree, assert_same, check, place

NUMBERS: dict[str, Any] = {
    "alpha": 2,
    "beta": 2.0,
    "eps": 1e-3,
    "exponent": 2,
    "input_scale": 0.9,
    "is_result": False,
    "lambd": 0.3,
    "max": 0.5,
    "max_val": 0.5,
    "min": -0.5,
    "min_val": -0.5,
    "n": 2,
    "negative_slope": 0.1,
    "other": 1.5,
    "scale": 1.2,
    "self": 2.0,
    "self_is_result": False,
    "threshold": 0.2,
    "value": 0.5,
    "weight": 0.3,
    "x": 0.4,
    "decimals": 1,
    "approximate": "tanh",
    "rounding_mode": "floor",
}
"""What each argument that is no tensor is given."""


def overload(name: str) -> Any:
    base, _, label = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), label or "default")


def tensor_for(name: str, dtype: Any) -> Tensor:
    """Values in (-0.9, 0.9), or small integers; exponents and shifts that every dtype allows."""
    x = torch.rand(6, 37) * 1.8 - 0.9
    if name in ("mask", "condition"):
        return x > 0
    if name == "value":
        return torch.tensor(2).to(dtype)
    if name == "exponent" or dtype is torch.bool:
        x = x.abs()
    return x if dtype.is_floating_point else (x * 5).to(dtype)


def arguments(schema: Any, dtype: Any) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema.arguments:
        if argument.is_out:
            continue
        value = NUMBERS.get(argument.name)
        if "Tensor" in str(argument.type):
            value = tensor_for(argument.name, dtype)
        elif isinstance(value, float) and not dtype.is_floating_point:
            value = int(value * 10)
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs


def call(function: Any, args: list[Any], kwargs: dict[str, Any], where: Any, out: Any) -> Any:
    moved = [arg.clone().to(where) if isinstance(arg, Tensor) else arg for arg in args]
    written = [argument.name for argument in function._schema.arguments if argument.is_out]
    outputs = {name: torch.empty(0, dtype=out, device=where) for name in written}
    return function(*moved, **kwargs, **outputs)


def expected(function: Any, args: list[Any], kwargs: dict[str, Any], dtype: Any) -> Any:
    """The CPU's result and its dtype, or None where the CPU refuses the dtypes."""
    for out in (dtype, torch.float32, torch.bool):
        try:
            return call(function, args, kwargs, "cpu", out), out
        except (RuntimeError, NotImplementedError):
            continue
    return None


PLAIN = [name for name in OPERATORS if name.partition(".")[0] not in SPECIAL]
"""Those in which this file's numbers say much; `test_ops_special` has the others."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PLAIN)
def test_every_overload_matches_the_cpu(device: Any, name: str) -> None:
    torch.manual_seed(0)
    function = overload(name)
    compared = 0
    for dtype in (torch.float32, torch.int32, torch.bool):
        if compared and function._schema.is_mutable:
            break  # forms in place and with an output differ in what they store only
        args, kwargs = arguments(function._schema, dtype)
        if "shift" in name:
            args = [arg.abs() if arg.dtype is torch.int32 else arg for arg in args]
        reference = expected(function, args, kwargs, dtype)
        if reference is None:
            continue
        theirs, out = reference
        assert_same(call(function, args, kwargs, place(device), out), theirs, 2e-5)
        compared += 1
    assert compared, f"the CPU refused every dtype for {name}"


LAYOUTS: dict[str, Any] = {
    "contiguous": lambda: (torch.randn(5, 7, 33), torch.randn(5, 7, 33)),
    "transposed": lambda: (torch.randn(33, 7).t(), torch.randn(7, 33)),
    "both transposed": lambda: (torch.randn(33, 7).t(), torch.randn(33, 7).t()),
    "broadcast row": lambda: (torch.randn(40, 50), torch.randn(50)),
    "broadcast column": lambda: (torch.randn(40, 50), torch.randn(40, 1)),
    "outer": lambda: (torch.randn(40, 1, 3), torch.randn(50, 1)),
    "sliced": lambda: (torch.randn(20, 30)[3:, 5:25:2], torch.randn(17, 10)),
    "offset": lambda: (torch.randn(101)[1:], torch.randn(103)[3:]),
    "no dimensions": lambda: (torch.randn(()), torch.randn(())),
    "one without": lambda: (torch.randn(9), torch.randn(())),
    "empty": lambda: (torch.randn(0, 4), torch.randn(1, 4)),
    "channels last": lambda: (
        torch.randn(2, 5, 4, 3).to(memory_format=torch.channels_last),
        torch.randn(5, 1, 1),
    ),
    "channel bias": lambda: (torch.randn(3, 5, 8, 8), torch.randn(1, 5, 1, 1)),
    "long": lambda: (torch.randn(70001), torch.randn(70001)),
    "many dimensions": lambda: (torch.randn(2, 3, 2, 3, 2, 3)[:, ::2], torch.randn(3, 1, 3)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(device: Any, layout: str) -> None:
    torch.manual_seed(0)
    a, b = LAYOUTS[layout]()
    agree(device, lambda a, b: a + 2 * b, a, b)
    agree(device, lambda a, b: torch.where(a > b, a, b).sigmoid(), a, b)


@pytest.mark.parametrize("layout", ["transposed", "both transposed", "channels last", "sliced"])
def test_results_lie_in_memory_as_on_the_cpu(device: Any, layout: str) -> None:
    a, b = LAYOUTS[layout]()
    where = place(device)
    # a copy keeps the strides of what is dense; others are views of a bigger tensor there too
    ours = [torch.empty_strided(t.shape, t.stride(), device=where) for t in (a, b)]
    assert torch.mul(*ours).stride() == torch.mul(a, b).stride()
    # torch makes these of an empty tensor and their `out=` form
    assert ours[0].abs().stride() == a.abs().stride()
    assert torch.logical_and(*ours).stride() == torch.logical_and(a, b).stride()
    assert torch.complex(*ours).stride() == torch.complex(a, b).stride()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operator", [torch.add, torch.div, torch.eq, torch.maximum])
def test_dtypes_are_promoted_as_on_the_cpu(device: Any, operator: Any) -> None:
    dtypes = [d for d in DTYPES if d not in (torch.float64, torch.int16)]
    if device.index:
        dtypes = [torch.float32, torch.int64, torch.bool]
    for left, right in product(dtypes, dtypes):
        a, b = torch.tensor([0, 1, 1, 1]).to(left), torch.tensor([1, 1, 1, 1]).to(right)
        agree(device, operator, a, b, tolerance=1e-2)


@pytest.mark.parametrize("number", [2, 1.5, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
def test_numbers_are_promoted_as_on_the_cpu(device: Any, dtype: Any, number: Any) -> None:
    x = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    agree(device, lambda x: (x * number, number + x, x > number, x[0] * number), x)
    agree(device, lambda x: x * torch.tensor(number), x)


def test_another_default_dtype_is_that_of_quotients_already_planned(device: Any) -> None:
    x = torch.arange(1, 4, device=place(device))
    assert (x / x).dtype is x.sqrt().dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert (x / x).dtype is x.sqrt().dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert (x / x).dtype is x.sqrt().dtype is torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_computed_in_float32(device: Any, dtype: Any) -> None:
    x = torch.randn(1000).to(dtype)
    y = torch.randn(1000, 2).to(dtype)[:, 0]
    agree(device, lambda x, y: (x * y, torch.exp(x), x + 3, torch.atan2(x, y)), x, y,
          tolerance=float(torch.finfo(dtype).eps))  # fmt: skip
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]).to(dtype)
    agree(device, lambda x: (x + 1, x.isnan()), special)


def test_float64_keeps_its_precision(device: Any) -> None:
    if "cl_khr_fp64" not in device.limits.extensions:
        pytest.skip("this device has no fp64")
    x = torch.rand(100, dtype=torch.float64)
    agree(device, lambda x: (x * (1 / 3), x.exp(), x.erf()), x,
          tolerance=1e-13)  # fmt: skip


def test_int64_is_exact(device: Any) -> None:
    x = torch.tensor([2**53 + 1, -(2**62) - 3, 7], dtype=torch.int64)
    agree(device, lambda x: (x + 1, x * 2 + x // 3, x % 10, x & 255, x > 2**53), x)


def test_an_integer_division_by_zero_does_not_end_the_process(device: Any) -> None:
    x = torch.tensor([5, -7, -(2**31)], dtype=torch.int32).to(place(device))
    zero = torch.tensor([0, 0, -1], dtype=torch.int32).to(place(device))
    assert torch.div(x, zero, rounding_mode="trunc")[:2].tolist() == [0, 0]
    assert torch.remainder(x, zero)[2].item() == 0
    infinite = x.float() / zero.float()
    assert infinite[0].item() == float("inf")


@pytest.mark.parametrize("out", [torch.float32, torch.int64, torch.uint8], ids=str)
def test_added_bools_are_bools_in_any_output(device: Any, out: Any) -> None:
    def added(x: Tensor) -> tuple[Tensor, Tensor]:
        given = torch.empty(2, 2, dtype=out, device=x.device)
        return torch.add(x, x, out=given[0]), torch.eq(x, x, out=given[1])

    agree(device, added, torch.tensor([True, False]))


def test_quotients_are_rounded_correctly(device: Any) -> None:
    """Of all n * k / k whose factors are exact; an error of one place moves items between bins."""
    n, k = torch.arange(1.0, 300).view(-1, 1), torch.arange(1.0, 300)
    there = (n * k).to(place(device)) / k.to(place(device))
    assert torch.equal(there.cpu(), n.expand_as(n * k))
    x, y = torch.randn(1 << 16), torch.randn(1 << 16)
    assert torch.equal((x.to(place(device)) / y.to(place(device))).cpu(), x / y)


def test_bytes_are_divided_by_255(device: Any) -> None:
    x, y = torch.arange(256, dtype=torch.uint8), torch.tensor([255, 254, 1], dtype=torch.uint8)
    divided = torch.floor_divide, torch.remainder, torch.fmod, torch.gcd, torch.lcm
    agree(device, lambda x, y: [function(x[:, None], y) for function in divided], x, y)


def test_bounds_that_are_no_numbers_leave_none(device: Any) -> None:
    x = torch.tensor([float("nan"), 1.0, -2.0, float("inf")])
    low = torch.tensor([0.0, float("nan"), -1.0, float("nan")])
    agree(device, lambda x, low: (x.clamp(low, low + 1), x.clamp(max=low), x.clamp(low)), x, low)
    agree(device, lambda x: (x.clamp(float("nan"), 1), x.clamp(max=float("nan"))), x)
    agree(device, torch.heaviside, x, low)


@pytest.mark.parametrize("name", ["neg", "abs", "maximum", "minimum", "clamp", "sign", "relu"])
def test_not_a_number_stays(device: Any, name: str) -> None:
    x = torch.tensor([float("nan"), 1.0, -2.0, float("inf")])
    extra: dict[str, tuple[Any, ...]] = {"maximum": (x.flip(0),), "minimum": (x.flip(0),)}
    if name == "clamp":
        agree(device, lambda x: x.clamp(-1, 1), x)
    elif name in extra:
        agree(device, getattr(torch, name), x, *extra[name])
    elif name != "sign":
        agree(device, getattr(torch, name), x)
    else:
        agree(device, lambda x: torch.sign(x[1:]), x)


DIFFERENTIABLE: dict[str, Any] = {
    "arithmetic": lambda x: (x * 3 + 1) / (x * x + 1) - x.pow(3),
    "exponentials": lambda x: (x.exp() + 1).log() + x.sigmoid() * x.tanh(),
    "trigonometry": lambda x: x.sin() * x.cos() + x.atan(),
    "roots": lambda x: (x * x + 1).sqrt() + (x * x + 1).rsqrt(),
    "bounds": lambda x: x.clamp(-0.5, 0.5) + torch.maximum(x, -x) + x.abs(),
    "choice": lambda x: torch.where(x > 0, x, 2 * x) + x.masked_fill(x > 1, 3),
    "mixing": lambda x: x.lerp(x * 2, 0.3) + torch.addcmul(x, x, x, value=0.5),
    "broadcast": lambda x: x * x[:1] + x[:, :1],
    **{
        name: getattr(torch.nn.functional, name)
        for name in (
            *("relu", "gelu", "silu", "elu", "hardtanh", "relu6", "hardswish", "hardsigmoid"),
            *("softplus", "leaky_relu", "mish", "logsigmoid", "hardshrink", "softshrink"),
        )
    },
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(device: Any, name: str) -> None:
    torch.manual_seed(0)
    check(device, DIFFERENTIABLE[name], torch.randn(6, 21), tolerance=1e-4)


@pytest.mark.parametrize("name", ["elu_", "celu_", "leaky_relu_"])
def test_negative_slopes_in_place_have_no_gradient(device: Any, name: str) -> None:
    x = torch.tensor([-1.0, 1.0], device=place(device), requires_grad=True)
    y = getattr(torch.nn.functional, name)(x.clone(), -2)
    with pytest.raises(RuntimeError, match="call out-of-place version"):
        y.sum().backward()


def test_new_numbers_and_new_storage_compile_nothing(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(64, 64).to(place(device))
    other = x.clone()
    _ = x * 1.5
    monkeypatch.setattr(elementwise, "prepare", None)
    assert_same(x * 2.5, x.cpu() * 2.5)
    assert_same(other * 3.5, x.cpu() * 3.5)


def test_outputs_are_resized_and_views_written(device: Any) -> None:
    x = torch.arange(6.0).view(2, 3).to(place(device))
    out = torch.empty(0, device=place(device))
    assert torch.add(x, x, out=out) is out
    assert_same(out, x.cpu() * 2)
    board = torch.zeros(4, 6, device=place(device))
    torch.mul(x, 3, out=board[::2, 1::2])
    assert board.cpu()[::2, 1::2].tolist() == (x.cpu() * 3).tolist()
    assert board.sum().item() == 45
    board[1].add_(1)
    assert board.sum().item() == 51


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16])
def test_results_are_those_of_the_inputs_dtype_in_a_wider_output(device: Any, dtype: Any) -> None:
    x = torch.tensor([100, 0, 1]).to(dtype)
    agree(device, lambda x: torch.add(x, x, out=torch.empty(3, device=x.device)), x)
    agree(device, lambda x: torch.mul(x, x, out=torch.empty(3, device=x.device)), x)


def test_impossible_calls_say_what_is_wrong(device: Any) -> None:
    x = torch.ones(3, device=place(device))
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        x.add_(torch.ones(2, 3, device=place(device)))
    with pytest.raises(RuntimeError, match="refers to a single memory location"):
        x[:1].expand(5).add_(1)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        x + torch.ones(4, device=place(device))
    with pytest.raises(NotImplementedError, match="not implemented for 'Float'"):
        x & x
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
        x.long().add_(1.5)
    mask = x > 0
    for refused in (lambda: mask - mask, lambda: 1 - mask, lambda: -mask):
        with pytest.raises(RuntimeError, match=r"`-` operator.* is not supported"):
            refused()
    for of_integers in (lambda: x.bitwise_not(), lambda: mask << mask, lambda: mask.gcd(mask)):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            of_integers()


def test_an_output_may_be_an_input_but_not_overlap_one(device: Any) -> None:
    x = torch.arange(10.0, device=place(device))
    with pytest.raises(RuntimeError, match="some elements of the input tensor"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError, match="some elements of the input tensor"):
        torch.exp(x[:5], out=x[2:7])
    x.mul_(x)
    torch.add(x[:5], x[5:], out=x[:5])
    assert x[:5].tolist() == [25, 37, 53, 73, 97]


@pytest.mark.parametrize("shift", [lambda x, n: x << n, lambda x, n: x >> n])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_pythons_shifts(device: Any, shift: Any, dtype: Any) -> None:
    x = torch.tensor([1, 7, 100], dtype=dtype)
    for count in (2, torch.tensor([0, 1, 3], dtype=dtype)):
        given = (count,) if isinstance(count, torch.Tensor) else ()
        agree(device, lambda x, *other, n=count: shift(x, *(other or (n,))), x, *given)

    def in_place(x: Any) -> Any:
        y = x.clone()
        y <<= 1
        y >>= 2
        return y

    agree(device, in_place, x)


def test_nothing_may_be_expanded(device: Any) -> None:
    agree(device, lambda x: x.expand(3, 4, 0).abs(), torch.empty(3, 1, 0))


def test_an_operator_is_a_row_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(pointwise_kernels.ROWS, "atan")
    assert OPERATORS.keys() - pointwise.operators().keys() == {"atan", "atan_", "atan.out"}
