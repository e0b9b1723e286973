"""How sums are rounded as they are stored, and which programs of a GPU divide correctly."""

from __future__ import annotations

import numpy as np
import pytest

from oclgen.activations import ACTIVATIONS
from oclgen.opencl.device import Device
from oclgen.opencl.programs import ROUNDED, Programs
from oclgen.plan import Launch, Plan, Scalar, buffer
from oclgen.render import VECTOR_WIDTHS, activation_preamble, dtype_preamble

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
