"""One kernel of each family on every device, as its default is."""

from __future__ import annotations

import pytest

from oclgen.families import FAMILIES
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.sample import PROBLEMS
from tests import sampled_builds


@pytest.mark.sampled(1)
@pytest.mark.on_each_device(4)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_default_is_right(device: Device, name: str) -> None:
    """A family that the device cannot run, by lack of an instruction for instance, says why.

    The others are built with the compiler's optimiser, which most programs of a run are not.
    """
    family = FAMILIES[name]
    served = [problem for problem in PROBLEMS if family.serves(problem)]
    assert served, f"{name} serves none of the problems above: add one that it does"
    reasons = {problem.key(): family.DEFAULT.why_not(problem, device.limits) for problem in served}
    runnable = [problem for problem in served if reasons[problem.key()] is None]
    if not runnable:
        pytest.skip(next(filter(None, reasons.values())))
    with sampled_builds.as_users_build():
        result = Bench(device, runnable[0]).measure(family.plan(runnable[0], family.DEFAULT), 0.0)
    assert result.ok, f"{runnable[0].key()}: {result.reason}"
