"""Attention's own kernels: values, gradients, masks, dropout and memory against the CPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ocl_backend.dispatch.tuned import prepared_calls, reload_tuned
from oclgen.families import FAMILIES
from oclgen.families.attention import attention_register
from oclgen.families.attention.attention_register import DEFAULT, GPU, Config
from oclgen.limits import KIB, Limits
from oclgen.problem import AttentionProblem
from tests.ocl_backend.cpu_twin import check, place, relative

attention: Any = functional.scaled_dot_product_attention
CONFIGS = {
    "cpu": replace(DEFAULT, local_m=1, local_n=1, item_m=8, item_v=2, vec=16, loop_m=8, chunks=2),
    "few_rows": replace(DEFAULT, local_m=1, local_n=1, item_v=2, vec=16, chunks=2),
    "gpu": GPU[0],
    "default": DEFAULT,
}


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that makes one config serve everything."""

    def choose(config: Config) -> None:
        for family in FAMILIES.values():
            if family.NAME.startswith("attention"):
                others = () if family is not attention_register else (config,)
                monkeypatch.setattr(family, "guesses", lambda *_, found=others: found)
        reload_tuned()

    yield choose
    monkeypatch.undo()
    reload_tuned()


def inputs(queries: int, keys: int, dim: int, dim_v: int, heads: int = 2, shared: int = 2) -> Any:
    torch.manual_seed(0)
    return (
        torch.randn(2, queries, heads, dim).transpose(1, 2),  # as a model's projection leaves it
        torch.randn(2, shared, keys, dim),
        torch.randn(2, shared, keys, dim_v),
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_computes_the_same(device: Any, name: str, use: Any) -> None:
    if device.index and name != "gpu":
        pytest.skip("devices besides the first run one config")
    use(CONFIGS[name])
    check(
        device, lambda q, k, v: attention(q, k, v, is_causal=True), *inputs(70, 45, 20, 36),
        tolerance=3e-6,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_and_shared_heads(device: Any, kind: str) -> None:
    masks = {"bool": torch.rand(33, 70) > 0.3, "float": torch.randn(2, 1, 33, 70)}
    mask = masks[kind]
    if kind == "bool":
        mask[5] = False  # a query that sees nothing is answered with zeros

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, mask.to(q.device), scale=0.3, enable_gqa=True)

    check(device, masked, *inputs(33, 70, 24, 16, heads=4, shared=2), tolerance=3e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mask_of_floats_goes_with_halves(device: Any, dtype: Any) -> None:
    """torch takes a mask of fp32 beside query, key and value of 16 bits."""
    mask = torch.randn(33, 70).masked_fill(torch.rand(33, 70) < 0.3, -torch.inf)

    def masked(*tensors: Tensor) -> Tensor:
        return attention(*tensors, mask.to(tensors[0].device))

    given = [x.to(dtype) for x in inputs(33, 70, 24, 16)]
    check(device, masked, *given, tolerance=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("seen", [slice(0, 20), slice(33, 50), slice(67, 70)])
@pytest.mark.parametrize("step", [1, 2])
def test_a_token_sees_a_part_of_the_keys(device: Any, seen: slice, step: int) -> None:
    """A static cache has room for keys to come, so that whole vectors of keys are masked."""
    q, k, v = inputs(1, 70, 64, 64, heads=6)
    masks = torch.full((1, 70, step), -torch.inf)
    masks[:, seen] = 0.5

    def masked(to: Any) -> Tensor:
        mask = masks.to(to)[..., 0]
        return attention(q.to(to), k.to(to), v.to(to), mask, enable_gqa=True)

    assert relative(masked(place(device)), masked("cpu")) <= 3e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_full(device: Any, dtype: Any) -> None:
    if device.index and dtype is torch.float16:
        pytest.skip("devices besides the first run one dtype")
    given = [x.to(dtype) for x in inputs(1, 300, 64, 64)]
    exact = attention(*(x.float() for x in given))
    ours = attention(*(x.to(place(device)) for x in given))
    assert ours.dtype is dtype
    assert relative(ours.float(), exact) <= torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_take_three_launches_or_two(device: Any, dtype: Any) -> None:
    if device.index:
        pytest.skip("the launches are the same on every device")
    rows = torch.randn(2, 33, 3 * 2 * 16, dtype=dtype, device=place(device)).requires_grad_()

    def seen() -> list[str]:
        parts = [part.view(2, 33, 2, 16).transpose(1, 2) for part in rows.chunk(3, -1)]
        out = attention(*parts, is_causal=True).transpose(1, 2).reshape(2, 33, 32)
        grad = torch.ones_like(out)
        with torch.ocl.profile(file=None) as commands:
            torch.autograd.grad(out, parts, grad)
        return [command.name for command in commands.commands]

    seen()  # what is prepared once
    names = seen()
    assert [name for name in names if not name.startswith("attention")] == ["reduce_dot"]
    cores = device.limits.compute_units if device.limits.kind == "cpu" else 0
    assert len(names) == (2 if cores in (1, 2, 4) else 3)  # the four heads are as many on each


def test_rows_that_no_read_of_16_bytes_can_begin_at_are_copied(device: Any) -> None:
    wide = torch.randn(3, 2, 2, 33, 17)
    check(device, lambda x: attention(*x[..., 1:]), wide, tolerance=3e-6)


def test_dropout_is_the_same_forward_and_backward_and_for_every_tile(device: Any, use: Any) -> None:
    if device.index:
        pytest.skip("the text is the same for every device")
    q, k, _ = inputs(40, 48, 16, 48)
    eye = torch.eye(48).expand(2, 2, 48, 48).contiguous()
    v = torch.randn(2, 2, 48, 48)
    leaves = [x.to(place(device)).requires_grad_() for x in (q, k, v)]

    def dropped(*tensors: Tensor) -> Tensor:
        torch.ocl.manual_seed(3)
        return attention(*tensors, dropout_p=0.3)

    probabilities = dropped(leaves[0], leaves[1], eye.to(place(device))).detach().cpu()
    kept = probabilities != 0
    assert float(kept.float().mean()) == pytest.approx(0.7, abs=0.02)
    twins = [x.clone().requires_grad_() for x in (q, k, v)]
    theirs = (twins[0] @ twins[1].mT / 4).softmax(-1) * kept / 0.7 @ twins[2]
    ours = dropped(*leaves)
    assert relative(ours, theirs) <= 3e-6
    grad = torch.randn_like(theirs)
    ours.backward(grad.to(place(device)))
    theirs.backward(grad)
    for leaf, twin in zip(leaves, twins, strict=True):
        assert relative(leaf.grad, twin.grad) <= 3e-6
    use(GPU[0])
    assert relative(dropped(*leaves), theirs) <= 3e-6


def peak_bytes(device: Any, length: int) -> int:
    gc.collect()  # tensors of earlier tests, freed in between, would lower the peak
    torch.ocl.empty_cache()  # blocks of earlier tests that are larger than asked for would raise it
    leaves = [torch.randn(1, 1, length, 16, device=place(device)).requires_grad_() for _ in "qkv"]
    torch.ocl.reset_peak_memory_stats(device.index)
    before = torch.ocl.memory_allocated(device.index)
    attention(*leaves, is_causal=True).sum().backward()
    return int(torch.ocl.max_memory_allocated(device.index)) - before


def test_memory_grows_linearly(device: Any) -> None:
    if device.index:
        pytest.skip("allocations are the same for every device")
    assert peak_bytes(device, 4096) <= 2.1 * peak_bytes(device, 2048)


def test_the_choice_of_the_user_is_respected(device: Any) -> None:
    if device.index:
        pytest.skip("the choice is the same for every device")
    tensors = [x.to(place(device)) for x in inputs(8, 8, 8, 8)]
    reload_tuned()
    with sdpa_kernel(SDPBackend.MATH):
        attention(*tensors)
    assert all(call.problem.op == "gemm" for call in prepared_calls())
    for asked in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        reload_tuned()
        with sdpa_kernel(asked):
            attention(*tensors)
        assert {call.problem.op for call in prepared_calls()} == {"attention"}
    with sdpa_kernel([]), pytest.raises(RuntimeError, match="No viable backend"):
        attention(*tensors)


@pytest.mark.parametrize("direction", ["fwd", "bwd_q", "bwd_kv"])
@pytest.mark.parametrize("dim", [16, 64, 128, 256])
def test_the_smallest_device_has_room(direction: Any, dim: int) -> None:
    problem = AttentionProblem(
        1, 2, 2, 512, 512, dim, dim, direction=direction, causal=True, mask=True, dropout=True
    )
    assert DEFAULT.why_not(problem, Limits()) is None
    nvidia = Limits("gpu", 47 * KIB, 1024, (1024, 1024, 64))
    assert any(config.why_not(problem, nvidia) is None for config in GPU)
