"""Kernels that add up at computed places, with the work-groups that GPUs are given.

A GPU's groups have work-items to spare; one that walks an item twice is harmless until it adds. The
process of its own that this takes has used no device when it begins: what it then knows of kernels
is tested, too, since the table of operators is made by such a process.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests import torch_processes

NAMES = (
    "index_add", "put", "histc", "bincount", "index_reduce.mean", "take",
    "nn.functional.embedding", "nn.functional.pad.replicate", "scatter_add",
    "nn.functional.max_pool2d", "nn.functional.avg_pool2d", "nn.functional.adaptive_avg_pool2d",
    "softmax", "log_softmax",
)  # fmt: skip
SCRIPT = f"""
import sys
from dataclasses import replace
from oclgen.opencl.device import devices
import ocl_backend
device = devices()[0]
device.limits = replace(device.limits, kind="gpu")
from tests import sampled_builds
from tests.conformance import cases
sampled_builds.begin()
print(*[cases.has_kernel(cases.operators()[name]) for name in ("mul", "T")])
for name in {NAMES}:
    dtype = str(cases.dtypes(cases.operators()[name])[0]).removeprefix("torch.")
    outcome = cases.run(name, dtype, 3, 0)
    assert outcome.samples, name
    for failure in outcome.failures:
        print(name, failure)
"""


def test_no_item_is_walked_twice_and_kernels_are_known_before_a_device_is_used(
    any_device: None,
) -> None:
    # a process of its own: prepared launches of this one have the device's own geometry
    done = torch_processes.run(SCRIPT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "True False\n"
