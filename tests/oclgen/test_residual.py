"""A residual is added by whoever stores results: in every family, at every edge, aligned or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import conv_cases
import gemm_cases
import numpy as np
import pytest
import winograd_cases
from cp_async_in_c import in_plain_c
from mma_emulated import emulate

from oclgen.device import Device
from oclgen.families import FAMILIES, families_for, gemm_mma
from oclgen.keys import parse_key
from oclgen.limits import KIB, Limits
from oclgen.measure import TOLERANCE, Bench, compare, decode, encode
from oclgen.plan import Buffer, Plan
from oclgen.problem import DTYPES, ConvProblem, GemmProblem, Problem, ProblemError
from oclgen.reference import random_inputs, reference
from tuned_db.nearest import SMALL, distance, kind_of

EVERYTHING = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma", "tma", "vdpbf16ps"}),
)  # fmt: skip
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
        replace(conv_cases.PIXELS[0], activation="silu"),
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
    "gemm_async": (*gemm_cases.ASYNCS, gemm_cases.STREAM),
    "gemm_mma": gemm_cases.MMAS,
    "gemm_pairs": gemm_cases.PAIRSES,
}
OF_CONVS: dict[str, tuple[dict[str, Any], ...]] = {
    "conv_async": ({"tile_m": 32, "tile_n": 48, "local_n": 12, "warp_m": 8, "split_k": 2},),
    "conv_mma": ({"tile_k": 16, "stages": 3, "split_k": 2}, {"tile_m": 128, "warps_m": 4}),
    "winograd_blocked": ({"vec_k": 1}, {"out_tile": 2}),
    "winograd_staged": ({"vec_t": 2, "local_t": 4}, {"out_tile": 2}),
}
"""What is changed of each family's default, besides `conv_cases.VARIED`."""


def runnable(device: Device, plan: Plan) -> Plan:
    """Return the plan, with copies in plain C where the device has no instruction, or skip."""
    sources = "".join(launch.source for launch in plan.launches)
    if "cp.async" not in sources or "cp_async" in device.limits.instructions:
        return plan
    if "Portable" in device.info.runtime:
        pytest.skip("PoCL 3.1 computes copies in plain C wrong")
    return in_plain_c(plan)


def check(device: Device, problem: Problem, family: str, config: Any) -> None:
    """Compare with float64, where all is aligned and where the residual is not."""
    plan = runnable(device, FAMILIES[family].plan(problem, config))
    result = Bench(device, problem).measure(plan, 0.0)
    assert result.ok, f"{problem.key()} {config}: {result.reason}"
    reason = difference(device, problem, plan)
    assert not reason, f"{problem.key()} {config}, residual not aligned: {reason}"


def difference(device: Device, problem: Problem, plan: Plan) -> str:
    """Return why the result is wrong, or "", where the residual begins an element late."""
    inputs = {role: encode(v, problem.dtype) for role, v in random_inputs(problem, 1).items()}
    like = encode(np.zeros(problem.buffers[problem.output], np.float32), problem.dtype)
    late = np.concatenate([np.zeros(1, like.dtype), inputs["residual"].ravel()])
    stored = {**inputs, "residual": late, problem.output: like}
    buffers = {role: device.upload(array) for role, array in stored.items()}
    device.prepare(plan, buffers, {"residual": 1}).run()
    out = decode(device.download(buffers[problem.output], like), problem.dtype)
    expected = reference(problem, {role: decode(v, problem.dtype) for role, v in inputs.items()})
    return compare(out, expected, TOLERANCE[problem.dtype])[1]


@pytest.mark.parametrize("problem", PRODUCTS, ids=gemm_cases.label)
@pytest.mark.parametrize("family", OF_PRODUCTS)
def test_products(
    device: Device, problem: GemmProblem, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if family == "gemm_mma":
        emulate(monkeypatch)
        dtypes = gemm_mma.DTYPES_SERVED
        problem = replace(problem, dtype=dtypes[PRODUCTS.index(problem)])
    if family == "gemm_pairs":
        if "vdpbf16ps" not in device.limits.instructions:
            pytest.skip(f"{device.name} lacks vdpbf16ps")
        problem = replace(problem, dtype="bf16")
    computed = 0
    for config in OF_PRODUCTS[family]:
        for trans_a, trans_b in ((False, False), (False, True), (True, False)):
            turned = replace(problem, trans_a=trans_a, trans_b=trans_b)
            if FAMILIES[family].serves(turned) and not config.why_not(turned, EVERYTHING):
                check(device, turned, family, config)
                computed += 1
                break
    assert computed


@pytest.mark.parametrize("problem", CONVS, ids=conv_cases.label)
def test_convolutions(
    device: Device, problem: ConvProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    computed = set()
    for name, family in FAMILIES.items():
        if not family.serves(problem) or name == "conv_as_gemm_pairs":
            continue
        changes = (*OF_CONVS.get(name, ()), conv_cases.VARIED.get(name, {}))
        for config in (family.DEFAULT, *(replace(family.DEFAULT, **change) for change in changes)):
            if config.why_not(problem, EVERYTHING) is None:
                check(device, problem, name, config)
                computed.add(name)
    assert computed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", [*PRODUCTS, *CONVS], ids=lambda p: p.key())
def test_one_launch_of_every_family_reads_it(problem: Problem, dtype: str) -> None:
    problem = replace(problem, dtype=dtype)
    for family in families_for(problem):
        launches = family.plan(problem, family.DEFAULT).launches
        assert sum(Buffer("residual") in launch.args for launch in launches) == 1, family.NAME


@pytest.mark.parametrize("problem", [*PRODUCTS, *CONVS], ids=lambda p: p.key())
def test_keys_and_neighbours(problem: Problem) -> None:
    without = replace(problem, residual=False)
    assert problem.key() == f"{without.key()}:residual"
    assert parse_key(problem.key()) == problem
    assert problem.buffers["residual"] == problem.buffers[problem.output]
    assert kind_of(problem) == kind_of(without)
    assert distance(problem, without) == SMALL


def test_only_the_forward_direction_has_a_residual() -> None:
    with pytest.raises(ProblemError, match="residual"):
        replace(CONVS[0], direction="bwd_data", bias=False, activation="none")
