"""Local memory beyond what a device reports: asked by a kernel, and used by wide tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oclgen.families.conv import conv_mma
from oclgen.families.gemm import gemm_mma
from oclgen.families.parts.mma_shapes import ranked
from oclgen.limits import KIB, DeviceInfo, Limits, broken
from oclgen.opencl import declared
from oclgen.opencl.device import Device
from oclgen.plan import Frame, Needs
from oclgen.problem import ConvProblem, GemmProblem

REPORTED = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma"}),
)  # fmt: skip
HOPPER = replace(REPORTED, declared_local_bytes=226 * KIB)
INFO = DeviceInfo("H200", "NVIDIA", "gpu", "nvidia sm_90", "CUDA", "3.0", "580", 132)
PRODUCT = GemmProblem(4096, 4096, 4096, "bf16")
LAYER = ConvProblem(32, 256, 28, 28, 256, 3, 3, pad_h=1, pad_w=1, dtype="fp16", layout="nhwc")


@pytest.mark.parametrize("kib", [1, 16])
def test_work_groups_find_in_local_memory_what_they_wrote(device: Device, kib: int) -> None:
    expected = declared.answer(kib * KIB)
    assert expected.sum() == declared.GROUPS * kib * KIB // 4
    out = device.upload(np.zeros_like(expected))
    device.prepare(declared.probe(kib * KIB), {"out": out}).run()
    assert np.array_equal(device.download(out, expected), expected)


def test_a_device_is_asked_for_what_its_architecture_has() -> None:
    assert declared.worth_asking(INFO) == 226 * KIB
    for other in ("nvidia sm_61", "amd gfx1100", "cpu x86_64 avx512"):
        assert declared.worth_asking(replace(INFO, architecture=other)) == 0


def test_what_may_be_declared_is_the_bound() -> None:
    needs = Needs((Frame("product", (128,), 192 * KIB),))
    assert broken(needs, HOPPER) is None
    reason = broken(needs, REPORTED) or ""
    assert "196608 B" in reason
    assert "48128 B" in reason
    assert "231424 B" in (broken(Needs((Frame("k", (128,), 232 * KIB),)), HOPPER) or "")


@pytest.mark.parametrize(("family", "problem"), [(gemm_mma, PRODUCT), (conv_mma, LAYER)])
def test_wide_tiles_are_guessed_first_where_they_fit(family: Any, problem: Any) -> None:
    def of(limits: Limits) -> list[int]:
        found = family.guesses(problem, limits)
        fit = [one for one in found if one.why_not(problem, limits) is None]
        return [one.needs(problem).frames[0].local_bytes for one in fit]

    assert min(of(HOPPER)[:3]) > REPORTED.local_bytes
    assert max(of(REPORTED)) <= REPORTED.local_bytes


def test_tiles_that_fill_the_last_round_come_first() -> None:
    def first(size: int) -> tuple[int, int]:
        best = ranked(size, size, 1, HOPPER.compute_units, lambda _shape: 1)[0]
        return best.tile_m, best.tile_n

    assert first(4096) == (128, 256)  # 512 tiles: 3.9 rounds
    assert first(3000) == (128, 192)  # 384: 2.9 rounds; 288 of 128 x 256 take 3, too
