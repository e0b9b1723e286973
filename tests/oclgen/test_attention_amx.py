"""Attention in tiles of processors, their own or in C: against float64, and where it is guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families.attention import attention_amx
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES
from oclgen.problem import AttentionProblem
from tests.guessed import valid_guesses
from tests.oclgen.amx_emulated import with_tiles
from tests.oclgen.attention_cases import AMXES, BASE, HALF, XEON
from tests.oclgen.attention_views import check_views


def right(device: Device, problem: AttentionProblem, config: attention_amx.Config) -> None:
    assert config.why_not(problem, device.limits) is None
    result = Bench(device, problem).measure(attention_amx.plan(problem, config), 0.0)
    assert result.ok, f"{problem.key()} {config}: {result.reason}"


@pytest.mark.parametrize("case", range(len(AMXES)))
@pytest.mark.parametrize("in_c", [False, True], ids=["own tiles", "tiles in C"])
def test_tiles_of_processors_are_right(
    device: Device, monkeypatch: pytest.MonkeyPatch, case: int, in_c: bool
) -> None:
    problem, config = AMXES[case]
    right(with_tiles(device, monkeypatch, in_c), problem, config)


@pytest.mark.parametrize(
    ("scale", "queries", "mask"), [(-0.5, 76, False), (0.0, 77, True), (-0.5, 78, True)]
)
def test_any_scale_of_tiles_is_right(
    device: Device, monkeypatch: pytest.MonkeyPatch, scale: float, queries: int, mask: bool
) -> None:
    monkeypatch.setattr(AttentionProblem, "scale", scale)
    problem = replace(HALF, queries=queries, causal=True, mask=mask)
    config = replace(attention_amx.DEFAULT, chunk=32)
    right(with_tiles(device, monkeypatch, in_c=True), problem, config)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("in_c", [False, True], ids=["own tiles", "tiles in C"])
def test_tiles_read_and_write_nothing_around_views(
    device: Device, monkeypatch: pytest.MonkeyPatch, pack: bool, in_c: bool
) -> None:
    tiled = with_tiles(device, monkeypatch, in_c)
    problem = replace(HALF, head_dim=32 if pack else 40, keys=53)
    config = replace(attention_amx.DEFAULT, vectors=2, pack=pack)
    check_views(tiled, problem, attention_amx.plan(problem, config))


def test_what_tiles_cannot_do_is_refused() -> None:
    config = attention_amx.DEFAULT
    fp16 = replace(HALF, dtype="fp16")
    assert "tdpfp16ps" in str(config.why_not(fp16, replace(XEON, instructions=frozenset({TILES}))))
    assert "tdpbf16ps" in str(config.why_not(HALF, replace(XEON, instructions=frozenset())))
    assert "chunk=40" in str(replace(config, chunk=40).why_not(HALF, XEON))
    assert not attention_amx.serves(BASE)
    assert not attention_amx.serves(replace(HALF, direction="bwd"))


def test_tiles_are_guessed_first_where_they_are_not_mostly_empty() -> None:
    for rows in (4, 16, 64, 65, 300):
        problem = AttentionProblem(1, 8, 8, rows, 300, 64, 64, "bf16")
        first = next(valid_guesses(problem, XEON))
        assert first.family == "attention_amx"
        assert first.config.vectors == (1 if rows <= 16 else 2)
        assert first.config.pack == (rows > 64)
    one = AttentionProblem(1, 8, 8, 1, 300, 64, 64, "bf16")
    assert attention_amx.guesses(one, XEON) == []
    no_tiles = replace(XEON, instructions=frozenset())
    assert attention_amx.guesses(problem, no_tiles) == []
