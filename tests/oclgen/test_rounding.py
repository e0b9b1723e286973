"""Which programs of a GPU divide correctly, where that is an option of its compiler."""

from __future__ import annotations

import pytest

from oclgen.activations import ACTIVATIONS
from oclgen.opencl.device import Device
from oclgen.opencl.programs import ROUNDED, Programs
from oclgen.render import activation_preamble

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
