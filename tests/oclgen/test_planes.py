"""The launch that adds planes of a split reduction: float32 sums in a fixed order, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from oclgen.families.gemm import gemm_parts
from oclgen.families.parts.planes import Sum, sum_planes, sum_weights
from oclgen.opencl.device import Device
from oclgen.plan import Plan, buffer
from oclgen.problem import ConvProblem, GemmProblem, Memory

Floats = NDArray[np.float32]

GEMM = GemmProblem(5, 7, 3, batch=2, activation="relu", residual=True)
CONV = ConvProblem(3, 2, 5, 4, 8, 1, 1, bias=True, activation="relu", residual=True)
WEIGHTS = ConvProblem(1, 5, 4, 4, 3, 3, 2, direction="bwd_weights", layout="nhwc")
DENSE = ConvProblem(1, 3, 6, 6, 7, 3, 2, direction="bwd_weights")


def random(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def in_order(planes: Floats, slices: int = 1) -> Floats:
    """Return the sum of planes as the kernel takes it: of each slice in turn, then of slices."""
    sums = [np.zeros_like(planes[0]) for _ in range(slices)]
    for at, plane in enumerate(planes):
        sums[at % slices] += plane
    for one in sums[1:]:
        sums[0] += one
    return sums[0]


def run(device: Device, added: Sum, given: dict[str, Floats], **scalars: int) -> dict[str, Floats]:
    """Return what the buffers hold after the launch."""
    buffers = {role: device.upload(array) for role, array in given.items()}
    device.prepare(Plan((added.launch(),)), buffers, scalars=scalars).run()
    return {role: device.download(buffers[role], array) for role, array in given.items()}


@pytest.mark.parametrize(("n", "bias"), [(7, "n"), (6, "m"), (8, "n"), (3, "m")])
def test_rows_lie_apart(device: Device, n: int, bias: Literal["m", "n"]) -> None:
    problem = replace(GEMM, n=n, bias=bias)
    planes, ld, batch = random(1, 3, 2, 5, n), n + 2, 5 * (n + 2) + 3
    added, residual = random(2, n if bias == "n" else 5), random(3, 2 * batch)
    given = {"planes": planes, "bias": added, "residual": residual, "c": np.full_like(residual, 9)}
    got = run(device, gemm_parts.sum_planes(problem, 3), given, ld_c=ld, batch_c=batch)["c"]

    def rows(flat: Floats) -> Floats:
        items = [flat[at : at + 5 * ld].reshape(5, ld)[:, :n] for at in (0, batch)]
        return np.stack(items)

    wanted = in_order(planes) + (added if bias == "n" else added[:, None]) + rows(residual)
    assert np.array_equal(rows(got), np.maximum(wanted, 0))
    assert np.count_nonzero(got == 9) == got.size - wanted.size


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_images_have_a_bias_by_channel(device: Device, layout: Memory) -> None:
    problem = replace(CONV, layout=layout)
    shape = problem.buffers["y"]
    planes, bias, residual = random(1, 4, *shape), random(2, 8), random(3, *shape)
    given = {"planes": planes, "bias": bias, "residual": residual, "y": np.full_like(residual, 9)}
    by_channel = bias if layout == "nhwc" else bias[:, None, None]
    wanted = np.maximum(in_order(planes) + by_channel + residual, 0)
    assert np.array_equal(run(device, sum_planes(problem, 4), given)["y"], wanted)


@pytest.mark.parametrize("count", [2, 17, 37])
@pytest.mark.parametrize("slices", [1, 16])
def test_slices_share_the_planes(device: Device, count: int, slices: int) -> None:
    shape = DENSE.buffers["w"]
    given = {"planes": random(1, count, *shape), "w": np.full(shape, 9, np.float32)}
    got = run(device, sum_planes(DENSE, count, slices), given)["w"]
    assert np.array_equal(got, in_order(given["planes"], slices))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("span", [2, 8])
def test_filters_lie_as_their_strides_say(device: Device, channels_last: bool, span: int) -> None:
    """Of 8 depths in a plane 5 are weights; those beyond are stored nowhere."""
    planes = random(1, 4, 3, 3, 2, 8)
    stored = (3, 3, 2, 5) if channels_last else (3, 5, 3, 2)
    strides = (30, 1, 10, 5) if channels_last else (30, 6, 2, 1)
    given = {"planes": planes, "w": np.full(stored, 9, np.float32)}
    named = {f"w_stride_{axis}": stride for axis, stride in enumerate(strides)}
    got = run(device, sum_weights(WEIGHTS, 4, 8, span), given, **named)["w"]
    wanted = in_order(planes)[..., :5]
    assert np.array_equal(got, wanted if channels_last else wanted.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("count", [1, 4, 11, 35])
def test_loads_in_flight_change_no_sum(device: Device, count: int) -> None:
    """Loads beyond the last plane, and beyond the last weight of a round, are added nowhere."""
    planes = random(1, count, 3, 3, 2, 8)
    given = {"planes": np.concatenate([planes, np.full_like(planes[:1], np.nan)])}
    given["w"] = np.full((3, 3, 2, 5), 9, np.float32)
    named = {f"w_stride_{axis}": stride for axis, stride in enumerate((30, 1, 10, 5))}
    ahead = replace(sum_weights(WEIGHTS, count, 8, 4), in_flight=16, local_size=10)
    assert np.array_equal(run(device, ahead, given, **named)["w"], in_order(planes)[..., :5])


def test_the_result_may_be_the_first_plane(device: Device) -> None:
    planes = random(1, 5, 70)
    added = Sum(GemmProblem(1, 1, 1), 5, (1, 1, 70), buffer("m"), local_size=32, role="m")
    got = run(device, added, {"m": planes})["m"]
    assert np.array_equal(got[0], in_order(planes))
    assert np.array_equal(got[1:], planes[1:])
