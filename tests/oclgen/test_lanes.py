"""With how many lanes programs are built where the compiler would choose too many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyopencl as cl

from oclgen.opencl import lanes
from oclgen.opencl.device import Device

TOLD = """
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void told(__global float *out, const long offset)
{
    out[offset + get_global_id(0)] = (float)get_sub_group_size();
}
"""


def test_the_fewest_lanes_where_a_gpu_has_no_fewer_than_16() -> None:
    assert lanes.fewest(()) == 0
    assert lanes.fewest((8, 16, 32)) == 0
    assert lanes.fewest((32, 16)) == 16


def test_options_reach_programs_that_say_nothing_of_lanes() -> None:
    (option,) = lanes.options(TOLD, 16)
    assert lanes.options(TOLD, 0) == ()
    assert lanes.options(f"{TOLD} // {lanes.ATTRIBUTE}(8)", 16) == ()
    assert option.endswith("intel_reqd_sub_group_size(16)")


def test_sizes_are_those_that_the_device_lists(device: Device) -> None:
    sizes = lanes.sizes_of(device.handle, Path(cl._cl.__file__))
    assert bool(sizes) == (lanes.EXTENSION in device.limits.extensions)
    if device.info.runtime == "Intel(R) OpenCL":
        assert {8, 16, 32} <= set(sizes)


def test_a_program_has_the_lanes_that_it_is_built_with(device: Device) -> None:
    if not {lanes.EXTENSION, "cl_intel_subgroups"} <= device.limits.extensions:
        return
    assert lanes.options(TOLD, 8)[0] not in device.programs.options(TOLD), "a processor chooses"
    for count in (8, 32):
        text = TOLD + f"// {count}"
        program = cl.Program(device.context, text).build([*lanes.options(text, count)])
        out = device.upload(np.zeros(64, np.float32))
        cl.Kernel(program, "told")(device.queue, (64,), (64,), out, np.int64(0))
        assert set(device.download(out, np.zeros(64, np.float32))) == {count}
