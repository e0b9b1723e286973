"""Programs of single work-items tell a processor's compiler that they have vectors of their own."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from oclgen.opencl import alone
from oclgen.opencl.device import Device

TEXT = """
__kernel __attribute__((reqd_work_group_size({group})))
void doubled(__global const float *x, __global float *out)
{{
    const int at = 4 * get_global_id(0);
    vstore4(2.0f * vload4(0, x + at), 0, out + at);
}}
"""
SINGLE = TEXT.format(group="1, 1, 1")


@pytest.mark.parametrize(
    "source",
    [
        TEXT.format(group="16, 1, 1"),
        SINGLE + TEXT.format(group="1, 4, 1"),
        SINGLE + "__kernel void unsaid() {}",
        "__kernel void unsaid() {}",
    ],
)
def test_kernels_whose_work_items_may_have_neighbours_keep_the_compilers_choice(
    source: str,
) -> None:
    assert alone.options(source) == ()


def test_the_option_reaches_processors_and_changes_no_result(device: Device) -> None:
    is_cpu = device.info.kind == "cpu"
    assert (alone.OPTION in device.programs.options(SINGLE)) == is_cpu
    given = np.arange(16, dtype=np.float32)
    out = device.upload(np.zeros(16, np.float32))
    program = cl.Program(device.context, SINGLE).build([*alone.options(SINGLE)])
    cl.Kernel(program, "doubled")(device.queue, (4,), (1,), device.upload(given), out)
    assert (device.download(out, np.zeros(16, np.float32)) == 2 * given).all()


def test_single_items_in_16_bits_are_read_as_they_are(device: Device) -> None:
    text = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void widened(__global const half *x, __global float *out, const int apart)
{
    const int at = get_global_id(0);
    out[at] = vload_half(at * apart, x);
}
"""
    is_intel = device.info.kind == "cpu" and "Intel" in device.info.vendor
    assert (alone.HALF in device.programs.options(text)) == is_intel
    given = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    out = device.upload(np.zeros(1 << 16, np.float32))
    kernel = cl.Kernel(device.programs.get(text), "widened")
    kernel(device.queue, (1 << 16,), (1,), device.upload(given), out, np.int32(1))
    found = device.download(out, np.zeros(1 << 16, np.float32))
    np.testing.assert_array_equal(found, given.astype(np.float32))


def test_private_bits_of_another_type_are_read_by_a_call() -> None:
    text = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void widened(__global const ushort *x, __global float *out)
{
    const ushort bits = x[get_global_id(0)];
    out[get_global_id(0)] = vload_half(0, (const half *)&bits);
}
"""
    assert alone.options(text, is_intel=True) == (alone.OPTION,)
    direct = text.replace("(const half *)&bits", "(const __global half *)x")
    assert alone.options(direct, is_intel=True) == (alone.OPTION, alone.HALF)


def test_roots_are_exact_of_any_argument(device: Device) -> None:
    text = """
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void rooted(__global const float *x, __global float *out)
{
    const int at = 8 * get_global_id(0);
    vstore8(rsqrt(vload8(0, x + at)), 0, out + at);
}
"""
    is_intel = device.info.kind == "cpu" and "Intel" in device.info.vendor
    assert (alone.ROOT in device.programs.options(text)) == is_intel
    assert alone.options("rsqrt(x)", is_intel=True) == (alone.ROOT,)
    given = np.array([4, -1, np.inf, np.nan, 0, 1e-30, 1e30, 0.5] * 2, dtype=np.float32)
    out = device.upload(np.zeros(16, np.float32))
    cl.Kernel(device.programs.get(text), "rooted")(
        device.queue, (2,), (1,), device.upload(given), out
    )
    with np.errstate(all="ignore"):
        wanted = 1 / np.sqrt(given.astype(np.float64))
    found = device.download(out, np.zeros(16, np.float32))
    np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=3e-7)
