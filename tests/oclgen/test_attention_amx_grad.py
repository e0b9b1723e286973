"""Gradients of attention in tiles of processors, own ones or in C: against float64, and guesses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.attention_problem import Direction
from oclgen.families.attention import attention_amx_grad
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES
from oclgen.problem import AttentionProblem
from tests.guessed import valid_guesses
from tests.oclgen.amx_emulated import with_tiles
from tests.oclgen.attention_cases import AMX_GRADS, BASE, HALF, XEON
from tests.oclgen.attention_views import check_views

IN_C = pytest.mark.parametrize("in_c", [False, True], ids=["own tiles", "tiles in C"])
GRADIENTS: tuple[Direction, ...] = ("bwd_q", "bwd_kv", "bwd")


@pytest.mark.parametrize("direction", GRADIENTS)
@pytest.mark.parametrize("case", range(len(AMX_GRADS)))
@IN_C
def test_gradients_in_tiles_are_right(
    device: Device, monkeypatch: pytest.MonkeyPatch, case: int, direction: Direction, in_c: bool
) -> None:
    tiled = with_tiles(device, monkeypatch, in_c)
    problem, config = AMX_GRADS[case]
    problem = replace(problem, direction=direction)
    assert config.why_not(problem, tiled.limits) is None
    result = Bench(tiled, problem).measure(attention_amx_grad.plan(problem, config), 0.0)
    assert result.ok, f"{problem.key()} {config}: {result.reason}"


@pytest.mark.parametrize(
    ("scale", "queries", "mask"), [(-0.5, 76, False), (0.3, 77, True), (-0.5, 78, True)]
)
def test_any_scale_of_gradients_is_right(
    device: Device, monkeypatch: pytest.MonkeyPatch, scale: float, queries: int, mask: bool
) -> None:
    monkeypatch.setattr(AttentionProblem, "scale", scale)
    problem = replace(HALF, queries=queries, causal=True, mask=mask, direction="bwd_kv")
    tiled = with_tiles(device, monkeypatch, in_c=True)
    plan = attention_amx_grad.plan(problem, attention_amx_grad.Config(chunk=32, block=32))
    assert Bench(tiled, problem).measure(plan, 0.0).ok


@pytest.mark.parametrize("direction", GRADIENTS)
@IN_C
def test_gradients_read_and_write_nothing_around_views(
    device: Device, monkeypatch: pytest.MonkeyPatch, direction: Direction, in_c: bool
) -> None:
    tiled = with_tiles(device, monkeypatch, in_c)
    problem = replace(HALF, head_dim=40, keys=53, direction=direction)
    config = attention_amx_grad.DEFAULT
    check_views(tiled, problem, attention_amx_grad.plan(problem, config))


def test_what_gradients_in_tiles_cannot_do_is_refused() -> None:
    config, problem = attention_amx_grad.DEFAULT, replace(HALF, direction="bwd")
    bf16_alone = replace(XEON, instructions=frozenset({TILES}))
    assert config.why_not(problem, bf16_alone) is None
    assert "tdpfp16ps" in str(config.why_not(replace(problem, dtype="fp16"), bf16_alone))
    assert "chunk=40" in str(replace(config, chunk=40).why_not(problem, XEON))
    assert "block=48" in str(replace(config, block=48).why_not(problem, XEON))
    assert not attention_amx_grad.serves(replace(BASE, direction="bwd"))
    assert not attention_amx_grad.serves(HALF)


@pytest.mark.parametrize(
    ("queries", "heads", "is_guessed"), [(300, 8, True), (8, 8, True), (7, 8, False), (5, 32, True)]
)
def test_gradients_in_tiles_are_guessed_for_many_rows(
    queries: int, heads: int, is_guessed: bool
) -> None:
    problem = AttentionProblem(1, heads, 8, queries, 300, 64, 64, "bf16", "bwd")
    assert bool(attention_amx_grad.guesses(problem, XEON)) == is_guessed
    assert attention_amx_grad.guesses(problem, replace(XEON, instructions=frozenset())) == []
    if is_guessed:
        assert next(valid_guesses(problem, XEON)).family == "attention_amx_grad"
