"""Loose chains: what eager models call one by one runs in few launches, with the same results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.ops.fused.expressions import MOST_NUMBERS

pytestmark = pytest.mark.usefixtures("any_device")

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
Results = Sequence[Any]


def rms_norm(x: Any, weight: Any) -> Results:
    """Normalise as Llama's layers do."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (weight * wide.to(x.dtype),)


def residual_norm(x: Any, weight: Any, more: Any) -> Results:
    """Add, and normalise what is kept, too."""
    kept = x + more
    return kept, *rms_norm(kept, weight)


def rotated(x: Any) -> Any:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def rope(q: Any, k: Any, v: Any, cos: Any, sin: Any, keys: Any, values: Any) -> Results:
    """Rotate query and key, and lay key and value after those of before."""
    q, k = (x * cos + rotated(x) * sin for x in (q, k))
    return q, torch.cat([keys, k], -2), torch.cat([values, v], -2)


def static_cache(k: Any, v: Any, keys: Any, values: Any, seen: Any) -> Results:
    """Write to places that a counter names, and count on."""
    keys, values, seen = keys + 0, values + 0, seen + 0
    places = torch.arange(k.shape[2], device=k.device) + seen
    seen.add_(k.shape[2])
    keys.index_copy_(2, places, k * 2)
    values.index_copy_(2, places, v)
    return keys, values, seen


def gated(gate: Any, up: Any) -> Results:
    return (torch.nn.functional.silu(gate) * up,)


def gated_tanh(gate: Any, up: Any) -> Results:
    return (torch.nn.functional.gelu(gate, approximate="tanh") * up,)


def projections(x: Any, *weights: Any) -> Results:
    """Return query, key and value."""
    return tuple(torch.nn.functional.linear(x, weight) for weight in weights)


def biased(x: Any, weight: Any, bias: Any, other: Any) -> Results:
    linear = torch.nn.functional.linear
    return linear(x, weight, bias), linear(x, other)


def mlp(x: Any, gate: Any, up: Any, down: Any, residual: Any) -> Results:
    linear = torch.nn.functional.linear
    inner = torch.nn.functional.silu(linear(x, gate)) * linear(x, up)
    return (residual + linear(inner, down),)


def drawn(dtype: Any, *shapes: tuple[int, ...]) -> list[Any]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draw).to(dtype) for shape in shapes]


def run(
    call: Callable[..., Results], given: Sequence[Any], where: Any = "ocl"
) -> tuple[Results, Counter[str]]:
    """Return what a call without gradients leaves, and the kernels of it once it is learnt."""
    inputs = [x.to(where) for x in given]
    with torch.no_grad():
        for _ in range(3):
            call(*inputs)
        torch.ocl.synchronize()
        with torch.ocl.profile(file=None) as seen:
            results = call(*inputs)
            torch.ocl.synchronize()
    return results, Counter(command.name for command in seen.commands)


def check(
    call: Callable[..., Results], given: Sequence[Any], most: int, exact: bool = False
) -> None:
    results, kernels = run(call, given)
    assert kernels.total() <= most, kernels
    again, _ = run(call, given)
    with torch.ocl.fusion(False), torch.no_grad():
        one_by_one = call(*[x.to("ocl") for x in given])
    for ours, twice, alone, theirs in zip(results, again, one_by_one, call(*given), strict=True):
        assert torch.equal(ours, twice)
        assert not exact or torch.equal(ours, alone)
        bound = TOLERANCE.get(theirs.dtype, 0)
        torch.testing.assert_close(ours.cpu(), theirs, rtol=bound, atol=4 * bound)


def noted_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which kernels of chains are added from now on."""
    from ocl_backend.ops.fused import expression_launch, row_products

    texts: list[str] = []
    plain = expression_launch.launch_of

    def noted(device: int, text: str, *more: Any) -> Any:
        texts.append(text)
        return plain(device, text, *more)

    for module in (expression_launch, row_products):
        monkeypatch.setattr(module, "launch_of", noted)
    return texts


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 256), (2, 5, 33)])
def test_a_norm_of_six_calls_is_one_launch(dtype: Any, shape: tuple[int, ...]) -> None:
    check(rms_norm, drawn(dtype, shape, shape[-1:]), 1)
    check(residual_norm, drawn(dtype, shape, shape[-1:], shape), 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [32, 10])
def test_rope_and_the_write_into_a_growing_cache_are_one_launch(dtype: Any, dim: int) -> None:
    q, k, v, *rest = drawn(
        dtype, (2, 3, 4, dim), (2, 3, 2, dim), (2, 3, 2, dim), (2, 1, 3, dim), (2, 1, 3, dim),
        (2, 2, 7, dim), (2, 2, 7, dim),
    )  # fmt: skip
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    check(rope, [*heads, *rest], 1, exact=True)


def test_a_static_cache_is_written_in_few_launches() -> None:
    position = torch.tensor([4])
    with torch.no_grad():
        for number in range(2, 2 * MOST_NUMBERS):  # additions of others take nothing from it
            for dtype in DTYPES:
                torch.zeros(1, 2, 9, 8, device="ocl", dtype=dtype) + number
            position.to("ocl") + number
    for dtype in DTYPES:
        given = drawn(dtype, (1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 9, 8), (1, 2, 9, 8))
        check(static_cache, [*given, position], 3, exact=True)


def test_a_range_of_one_number_is_spread() -> None:
    def call(x: Any) -> Results:
        return (torch.arange(5, 6, device=x.device) * 2 + x,)

    check(call, [torch.arange(8)], 1, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_numbers_of_a_mask_are_no_launches(dtype: Any) -> None:
    def call(x: Any, seen: Any) -> Results:
        doubled = x * 2
        hidden = torch.scalar_tensor(float("-inf"), dtype=x.dtype, device=x.device)
        return (torch.where(seen, 0.0, hidden) + doubled,)

    x = drawn(dtype, (3, 7))[0]
    check(call, [x, x > 0], 1, exact=True)


def test_a_position_outside_of_a_cache_is_told() -> None:
    given = drawn(torch.float32, (1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 9, 8), (1, 2, 9, 8))
    inputs = [*(x.to("ocl") for x in given), torch.tensor([7]).to("ocl")]
    for _ in range(3):
        with torch.no_grad(), pytest.raises((IndexError, RuntimeError)):
            static_cache(*inputs)
            torch.ocl.synchronize()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", [gated, gated_tanh])
def test_gates_are_one_launch(call: Callable[..., Results], dtype: Any) -> None:
    check(call, drawn(dtype, (2, 3, 37), (2, 3, 37)), 1)
    wide = drawn(dtype, (2, 3, 74))[0]
    check(call, wide.chunk(2, -1), 1)  # views of one tensor


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3])
def test_products_of_the_same_rows_are_one_launch(dtype: Any, rows: int) -> None:
    scale = 96**-0.5
    x, *weights = drawn(dtype, (1, rows, 96), (64, 96), (17, 96), (16, 96))
    check(projections, [x, *(weight * scale for weight in weights)], 1)
    x, weight, bias, other = drawn(dtype, (1, rows, 96), (33, 96), (33,), (16, 96))
    check(biased, [x, weight * scale, bias, other * scale], 1)
    x, gate, up, down, residual = drawn(
        dtype, (1, rows, 96), (40, 96), (40, 96), (96, 40), (1, rows, 96)
    )
    # the last one is a tuned product, which may pack its weights
    check(mlp, [x, gate * scale, up * scale, down * scale, residual], 3)


def test_many_rows_take_the_tuned_products() -> None:
    x, *weights = drawn(torch.float32, (1, 40, 96), (64, 96), (16, 96))
    given = [x, *(weight * 0.1 for weight in weights)]
    check(projections, given, 4)  # two, and what may pack their weights
    assert "row_products" not in run(projections, given)[1]


def test_what_is_kept_or_read_otherwise_is_in_memory() -> None:
    def call(x: Any) -> Results:
        kept = x * 2
        top = kept[..., :3]  # a part of a held result
        made = top + 1
        kept.mul_(3)  # after what read it
        return kept, made, kept[..., 1:] - 1

    check(call, drawn(torch.float32, (4, 8)), 4, exact=True)


def test_a_write_in_place_does_not_pass_what_reads_before() -> None:
    def call(x: Any) -> Results:
        own = x + 0
        before = own * 2  # dropped, and read after the write
        own.fill_(5)
        return before + own, own

    check(call, drawn(torch.float32, (3, 7)), 4, exact=True)


def test_means_of_other_shapes_stay_apart() -> None:
    def call(x: Any, y: Any) -> Results:
        spread = x - x.mean(-1, keepdim=True)
        share = y.mean(-1, keepdim=True)
        return spread.pow(2).mean(-1, keepdim=True), torch.cat([share, y], -1), spread * share

    check(call, drawn(torch.float32, (4, 33), (4, 9)), 5)


def test_a_mean_of_what_is_joined_and_a_long_chain_are_several_launches() -> None:
    def joined(x: Any, y: Any) -> Results:
        return (torch.cat([x, y], -1).mean(-1, keepdim=True),)

    def long(x: Any, y: Any) -> Results:
        for _ in range(50):
            x = x - y
        return (x,)

    given = drawn(torch.float32, (4, 33), (4, 33))
    check(joined, given, 3)
    check(long, given, 2, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_views_begin_anywhere(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_item(x: Any, y: Any) -> Results:
        x, y = x[:, :12], y.clone()
        y[:, :12].mul_(x * 2 + 1)
        return x * 3 - 1, y

    def by_rows(x: Any) -> Results:
        x = x[:, :12]
        return ((x * 2).mean(-1, keepdim=True) * x,)

    def by_products(x: Any, *weights: Any) -> Results:
        return tuple(torch.nn.functional.linear(x[:, :12], weight[:, :12]) for weight in weights)

    texts = noted_texts(monkeypatch)
    check(by_item, drawn(dtype, (3, 33), (3, 33)), 4, exact=True)
    check(by_rows, drawn(dtype, (3, 33)), 1)
    check(by_products, drawn(dtype, (3, 33), (8, 33), (9, 33)), 1)
    assert texts and not any("(size_t)" in text for text in texts)  # no access asks for alignment


def test_texts_of_nested_concatenations_stay_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(x: Any) -> Results:
        for _ in range(9):
            x = torch.cat([x, x * 2], -1)
        return (x,)

    texts = noted_texts(monkeypatch)
    check(doubled, drawn(torch.float32, (2, 3)), 9, exact=True)
    assert 0 < max(map(len, texts)) < 100_000


@pytest.mark.parametrize("rows", [3, 40])
def test_a_product_that_several_calls_read_is_in_memory(rows: int) -> None:
    def with_itself(x: Any, weight: Any) -> Results:
        product = x @ weight
        return (product + product,)

    def twice(x: Any, weight: Any, residual: Any) -> Results:
        product = x @ weight
        return product + residual, product * 3

    x, weight, residual = drawn(torch.float32, (rows, 96), (96, 64), (rows, 64))
    check(with_itself, [x, weight * 0.1], 3)
    check(twice, [x, weight * 0.1, residual], 4)


@torch.no_grad()
def test_a_product_does_not_pass_what_reads_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    from ocl_backend.ops.fused.window import Window

    x, first, second, target = (
        t.to("ocl") for t in drawn(torch.float32, (1, 96), (64, 96), (64, 96), (1, 64))
    )
    expected = x @ first.t() + target, x @ second.t()
    torch.ocl.synchronize()
    windows: list[Window] = []
    plain = Window.run

    def noted(self: Window) -> None:
        windows.append(self)
        plain(self)

    monkeypatch.setattr(Window, "run", noted)
    added = x @ first.t() + target
    torch.mm(x, second.t(), out=target)
    torch.ocl.synchronize()
    (window,) = windows
    assert len(window.units) == 2
    torch.testing.assert_close((added, target), expected)


def test_the_third_like_chain_runs_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    from ocl_backend.ops.fused.window import Window

    x, weight = (t.to("ocl") for t in drawn(torch.float32, (1, 3, 48), (48,)))
    asked: list[int] = []
    plain = Window.__init__

    def noted(self: Any, *given: Any) -> None:
        asked.append(1)
        plain(self, *given)

    monkeypatch.setattr(Window, "__init__", noted)
    for _ in range(4):
        with torch.no_grad():
            rms_norm(x, weight)
        torch.ocl.synchronize()
    assert len(asked) == 2


def test_autograd_holds_nothing_and_has_the_same_gradients() -> None:
    x, weight = drawn(torch.float32, (2, 5, 32), (32,))
    ours = [t.to("ocl").requires_grad_() for t in (x, weight)]
    theirs = [t.clone().requires_grad_() for t in (x, weight)]
    for tensors in (ours, theirs):
        rms_norm(*tensors)[0].pow(2).sum().backward()
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad.cpu(), yours.grad, rtol=1e-5, atol=1e-5)


def test_large_results_are_not_held() -> None:
    x = torch.ones(1 << 23, device="ocl")  # 32 MiB each
    with torch.no_grad():
        torch.ocl.reset_peak_memory_stats()
        before = torch.ocl.memory_allocated()
        for _ in range(16):
            x = x * 1 + 1
        torch.ocl.synchronize()
    assert torch.ocl.max_memory_allocated() - before <= 5 * x.nbytes
    assert x[0].item() == 17


@torch.no_grad()
def test_what_is_written_in_place_takes_no_memory_of_a_chain() -> None:
    caches = [torch.zeros(1, 1, 5 << 18, 8, device="ocl") for _ in range(2)]  # 40 MiB each
    given = [t.to("ocl") for t in drawn(torch.float32, (1, 1, 2, 8), (1, 1, 2, 8))]
    place = torch.tensor([7, 9], device="ocl")

    def call(*given: Any) -> Results:
        return [c.index_copy_(2, place, g * 2) for c, g in zip(caches, given, strict=True)]

    results, kernels = run(call, given)
    assert kernels == {"expressions": 1}
    for cache, x in zip(results, given, strict=True):
        torch.testing.assert_close(cache[:, :, place], 2 * x)


@torch.no_grad()
def test_tensors_without_dimensions_are_computed() -> None:
    x = torch.tensor(4.0, device="ocl")
    assert x.double().reciprocal().float().item() == 0.25
    assert (x.half() * 2 + 1).item() == 9
