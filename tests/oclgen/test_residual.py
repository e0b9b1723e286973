"""The kernel that stores results adds the residual: each family, each edge, aligned or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oclgen.families import FAMILIES, families_for
from oclgen.families.gemm import gemm_mma
from oclgen.keys import parse_key
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import TOLERANCE, Bench, compare, decode, encode
from oclgen.measuring.reference import random_inputs, reference
from oclgen.opencl.device import Device
from oclgen.opencl.probe import FATAL
from oclgen.plan import Buffer, Plan
from oclgen.problem import DTYPES, ConvProblem, GemmProblem, Problem, ProblemError
from oclgen.variant import Variant
from tests.oclgen import conv_cases, gemm_cases, winograd_cases
from tests.oclgen.cp_async_in_c import in_plain_c
from tests.oclgen.mma_emulated import emulate
from tuned_db.choosing.nearest import SMALL, distance, kind_of

EVERYTHING = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma", "tma", *FATAL}),
)  # fmt: skip
A_CPU = replace(EVERYTHING, kind="cpu")
PRODUCTS = (
    # tiles without a rest, whose rows are whole vectors
    GemmProblem(32, 64, 24, bias="n", activation="relu", residual=True),
    GemmProblem(33, 65, 17, batch=2, bias="m", activation="silu", residual=True),
    GemmProblem(7, 44, 40, residual=True),
)
CONVS = tuple(
    replace(problem, residual=True)
    for problem in (
        replace(conv_cases.SHAPES[4], bias=True, activation="relu"),
        conv_cases.SHAPES[2],
        replace(conv_cases.SHAPES[7], dtype="bf16", bias=True),
        ConvProblem(3, 8, 9, 8, 12, 3, 3, 2, 2, 1, 1, activation="gelu"),
        ConvProblem(2, 8, 6, 8, 12, 1, 1, bias=True, activation="relu6"),
        replace(conv_cases.DEPTHWISE_SHAPES[0], bias=True, activation="relu"),
        replace(conv_cases.DEPTHWISE_SHAPES[1], dtype="fp16", width=8),
        replace(conv_cases.DEPTHWISE_PIXELS[0], activation="relu6"),
        replace(conv_cases.PIXELS[0], dtype="tf32", activation="silu"),
        *(replace(p, bias=True, activation="relu") for p in winograd_cases.SHAPES[1:3]),
        winograd_cases.EVEN,
        replace(winograd_cases.SHAPES[3], layout="nhwc", activation="relu"),
        replace(winograd_cases.SHAPES[2], layout="nhwc", dtype="fp16", bias=True),
    )
)
OF_PRODUCTS: dict[str, tuple[Any, ...]] = {
    "gemm_register": gemm_cases.REGISTERS,
    "gemm_staged": gemm_cases.STAGEDS,
    "gemm_dot": gemm_cases.DOTS,
    "gemm_columns": gemm_cases.COLUMN_CONFIGS,
    "gemm_stream": gemm_cases.STREAM_CONFIGS,
    "gemm_async": (*gemm_cases.ASYNCS, gemm_cases.STREAM),
    "gemm_mma": gemm_cases.MMAS,
    "gemm_pairs": gemm_cases.PAIRSES,
    "gemm_amx": gemm_cases.AMXES,
}
BF16 = ("bf16",) * len(PRODUCTS)
OTHER_DTYPES = {
    "gemm_mma": gemm_mma.DTYPES_SERVED,
    **dict.fromkeys(("gemm_pairs", "gemm_amx"), BF16),
}
"""Of each of `PRODUCTS`, where a family does not serve fp32."""
OF_CONVS: dict[str, tuple[dict[str, Any], ...]] = {
    "conv_amx": ({"strips": 2, "vecs": 2}, {"vecs": 3, "loop_m": 2}),
    "conv_async": ({"tile_m": 32, "tile_n": 48, "local_n": 12, "warp_m": 8, "split_k": 2},),
    "conv_mma": (
        {"tile_k": 16, "stages": 3, "split_k": 2},
        {"unit": "wgmma", "tile_m": 128, "warps_m": 4, "warps_n": 1, "tile_k": 16, "stages": 3},
    ),
    "winograd_blocked": ({"vec_k": 1}, {"out_tile": 2}),
    "winograd_staged": ({"vec_t": 2, "local_t": 4}, {"out_tile": 2}),
}
"""What is changed of each family's default, besides `conv_cases.VARIED`."""
OF_CONVS |= {name: (change,) for name, change in conv_cases.OVERLAPPING.items()}


def configs_of(family: str, problem: ConvProblem) -> list[Any]:
    """Return the cases' configs that a GPU or a CPU would take; any device computes them."""
    base = FAMILIES[family].DEFAULT
    changes = ({}, *OF_CONVS.get(family, ()), conv_cases.VARIED.get(family, {}))
    configs = [replace(base, **change) for change in changes]
    return [c for c in configs if None in (c.why_not(problem, x) for x in (EVERYTHING, A_CPU))]


def computes(device: Device, family: str) -> bool:
    """Say whether the device computes what the family does, units emulated and copies in C."""
    if "async" in family and "cp_async" not in device.limits.instructions:
        return "Portable" not in device.info.runtime  # PoCL 3.1 computes it wrong
    asked = FAMILIES[family].TRAITS.instructions
    return not asked & set(FATAL) or asked <= device.limits.instructions


def check(device: Device, problem: Problem, variant: Variant) -> None:
    """Compare with float64: a residual that is aligned, one that is not, one that is the result."""
    plan = variant.plan(problem)
    if "cp_async" not in device.limits.instructions:
        plan = in_plain_c(plan)
    result = Bench(device, problem).measure(plan, 0.0)
    assert result.ok, f"{problem.key()} {variant.to_text()}: {result.reason}"
    for in_place in (False, True):
        reason = difference(device, problem, plan, in_place)
        assert not reason, f"{problem.key()} {variant.to_text()}, in_place={in_place}: {reason}"


def difference(device: Device, problem: Problem, plan: Plan, in_place: bool) -> str:
    """Return why the result is wrong, or "".

    The residual lies where the result will, or begins an element late.
    """
    inputs = {role: encode(v, problem.dtype) for role, v in random_inputs(problem, 1).items()}
    like = encode(np.zeros(problem.buffers[problem.output], np.float32), problem.dtype)
    late = np.concatenate([np.zeros(1, like.dtype), inputs["residual"].ravel()])
    stored = {**inputs, "residual": inputs["residual"] if in_place else late, problem.output: like}
    buffers = {role: device.upload(array) for role, array in stored.items()}
    if in_place:
        buffers[problem.output] = buffers["residual"]
    device.prepare(plan, buffers, {"residual": 0 if in_place else 1}).run()
    out = decode(device.download(buffers[problem.output], like), problem.dtype)
    expected = reference(problem, {role: decode(v, problem.dtype) for role, v in inputs.items()})
    return compare(out, expected, TOLERANCE[problem.dtype])[1]


def without_units(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulate matrix units where there are none."""
    if not {"mma", "wgmma"} <= device.limits.instructions:
        emulate(monkeypatch)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("problem", PRODUCTS, ids=gemm_cases.label)
@pytest.mark.parametrize("family", OF_PRODUCTS)
def test_products(
    device: Device, problem: GemmProblem, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not computes(device, family):
        pytest.skip(f"{device.name} does not compute {family}")
    without_units(device, monkeypatch)
    if family in OTHER_DTYPES:
        problem = replace(problem, dtype=OTHER_DTYPES[family][PRODUCTS.index(problem)])
    computed = 0
    for config in OF_PRODUCTS[family]:
        for trans_a, trans_b in ((False, False), (False, True), (True, False)):
            turned = replace(problem, trans_a=trans_a, trans_b=trans_b)
            if FAMILIES[family].serves(turned) and not config.why_not(turned, EVERYTHING):
                check(device, turned, Variant(family, config))
                computed += 1
                break
    assert computed


@pytest.mark.sampled(8)
@pytest.mark.parametrize("problem", CONVS, ids=conv_cases.label)
def test_convolutions(
    device: Device, problem: ConvProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_units(device, monkeypatch)
    for family in families_for(problem):
        if computes(device, family.NAME):
            for config in configs_of(family.NAME, problem):
                check(device, problem, Variant(family.NAME, config))


def test_every_family_of_convolutions_is_among_the_cases() -> None:
    for name, family in FAMILIES.items():
        served = [problem for problem in CONVS if family.serves(problem)]
        assert not served or any(configs_of(name, problem) for problem in served), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", [*PRODUCTS, *CONVS], ids=lambda p: p.key())
def test_one_launch_of_every_family_reads_it(
    problem: GemmProblem | ConvProblem, dtype: str
) -> None:
    problem = replace(problem, dtype=dtype)
    for family in families_for(problem):
        launches = family.plan(problem, family.DEFAULT).launches
        assert sum(Buffer("residual") in launch.args for launch in launches) == 1, family.NAME


@pytest.mark.parametrize("problem", [*PRODUCTS, *CONVS], ids=lambda p: p.key())
def test_keys_and_neighbours(problem: GemmProblem | ConvProblem) -> None:
    without = replace(problem, residual=False)
    assert problem.key() == f"{without.key()}:residual"
    assert parse_key(problem.key()) == problem
    assert problem.buffers["residual"] == problem.buffers[problem.output]
    assert kind_of(problem) == kind_of(without)
    assert distance(problem, without) == SMALL


def test_only_the_forward_direction_has_a_residual() -> None:
    with pytest.raises(ProblemError, match="residual"):
        replace(CONVS[0], direction="bwd_data", bias=False, activation="none")
