"""How sums are rounded as they are stored, and which programs of a GPU divide correctly."""

from __future__ import annotations

import numpy as np
import pytest

from oclgen.activations import ACTIVATIONS
from oclgen.opencl.device import Device
from oclgen.opencl.programs import ROUNDED, Programs
from oclgen.plan import Launch, Plan, Scalar, buffer
from oclgen.profiles.demands import demands
from oclgen.render import (
    BF16_INSTRUCTION,
    NARROW,
    VECTOR_WIDTHS,
    activation_preamble,
    dtype_preamble,
)

QUOTIENT = """
__kernel void quotient(__global float *x) { x[get_global_id(0)] /= 49.0f; }
"""


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_quotient_of_an_activation_need_not_be_correct(device: Device, name: str) -> None:
    programs = Programs(device.context, device.handle, device.info)
    programs._rounding = (ROUNDED,)
    assert ROUNDED in programs.options(QUOTIENT)
    text = activation_preamble(name) + QUOTIENT.replace("/= 49.0f", "= ACT(x[0])")
    assert ROUNDED not in programs.options(text)
    assert programs.key(QUOTIENT) != programs.key(text)


@pytest.mark.parametrize("width", VECTOR_WIDTHS)
def test_a_nan_of_the_device_is_stored_as_a_nan_of_bf16(device: Device, width: int) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 1.0, -2.5], np.float32)
    given = np.resize(values, (len(values) * width,))
    suffix = "" if width == 1 else str(width)
    loaded = "x[at]" if width == 1 else f"vload{width}(at, x)"
    text = f"""{dtype_preamble("bf16")}
    __kernel void store(__global const float *x, const long offset_x, __global elem_t *y,
                        const long offset_y, const int count)
    {{
        const int at = (int)get_global_id(0);
        const float{suffix} value = {loaded};
        STORE{width}(value - value + count, y + at * {width});
    }}
    """
    stored = np.zeros(given.size, np.uint16)
    buffers = {"x": device.upload(given), "y": device.upload(stored)}
    args = (*buffer("x"), *buffer("y"), Scalar(len(values)))
    launch = Launch(text, "store", (len(values),), (1,), args)
    device.prepare(Plan((launch,)), buffers).run()
    got = (device.download(buffers["y"], stored).astype(np.uint32) << 16).view(np.float32)
    assert np.isnan(got[~np.isfinite(given)]).all()
    assert (got[np.isfinite(given)] == len(values)).all()


def test_quotients_of_16_bits_need_not_be_correct(device: Device) -> None:
    programs = Programs(device.context, device.handle, device.info)
    programs._rounding = (ROUNDED,)
    assert ROUNDED not in programs.options(f"{NARROW}\n{QUOTIENT}")


def test_processors_with_the_instruction_round_to_bf16_by_it(device: Device) -> None:
    """The text itself has no assembly, so that it is the same for every device."""
    programs = Programs(device.context, device.handle, device.info)
    text = f"{dtype_preamble('bf16')}\n__kernel void rounds(__global ushort *x) {{}}"
    option = f"-D{BF16_INSTRUCTION}"
    assert option not in programs.options(text)
    before = programs.key(text)
    programs = Programs(device.context, device.handle, device.info)
    programs._has_bf16 = True
    assert option in programs.options(text)
    assert option not in programs.options(QUOTIENT)
    assert programs.key(text) != before
    assert not demands(text)


@pytest.mark.parametrize("width", VECTOR_WIDTHS)
def test_pairs_of_the_instruction_lie_in_their_order(device: Device, width: int) -> None:
    """Numbers that bf16 has are rounded by their bits in place of the instruction."""
    pair = "uint bf16_pair(float a, float b) { return as_uint(a) | as_uint(b) >> 16; }"
    given = np.arange(3 * width, dtype=np.float32)
    loaded = "x[at]" if width == 1 else f"vload{width}(at, x)"
    text = f"""{pair}
    #define {BF16_INSTRUCTION}
    {dtype_preamble("bf16")}
    __kernel void store_pairs(__global const float *x, const long offset_x, __global elem_t *y,
                              const long offset_y)
    {{
        const int at = (int)get_global_id(0);
        STORE{width}({loaded}, y + at * {width});
    }}
    """
    stored = np.zeros(given.size, np.uint16)
    buffers = {"x": device.upload(given), "y": device.upload(stored)}
    launch = Launch(text, "store_pairs", (3,), (1,), (*buffer("x"), *buffer("y")))
    device.prepare(Plan((launch,)), buffers).run()
    got = (device.download(buffers["y"], stored).astype(np.uint32) << 16).view(np.float32)
    assert (got == given).all()
