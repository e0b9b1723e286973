"""What a run leaves out is a sample's rest; programs that come from elsewhere tell their errors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from oclgen.families.gemm import gemm_pairs
from oclgen.sample import PROBLEMS
from tests import sampled_builds, samples

pytest_plugins = ("pytester",)

CASES = """
import pytest
from types import SimpleNamespace

devices = pytest.mark.parametrize("device", [SimpleNamespace(index=n) for n in range(2)])

@devices
@pytest.mark.parametrize("n", range(200))
def test_cheap(device, n): pass

@devices
@pytest.mark.sampled(10)
@pytest.mark.parametrize("n", range(200))
def test_costly(device, n): pass

@pytest.mark.sampled(10**6)
@pytest.mark.parametrize("n", range(3))
def test_at_least_once(n): pass

def test_plain(): pass
"""


def test_a_sample_holds_every_test_and_few_cases_of_costly_ones(
    pytester: pytest.Pytester,
) -> None:
    items = pytester.getitems(CASES)
    out = {item.nodeid for item in samples.left_out(items)}
    kept: Counter[tuple[str, int]] = Counter()
    for item in items:
        assert isinstance(item, pytest.Function)
        if item.nodeid not in out:
            kept[item.originalname, samples.device_of(item)] += 1
    assert kept == {
        ("test_cheap", 0): 200,
        ("test_cheap", 1): 50,
        ("test_costly", 0): 20,
        ("test_costly", 1): 20,
        ("test_at_least_once", 0): 1,
        ("test_plain", 0): 1,
    }


def test_assembly_of_wide_vectors_is_built_as_users_build_it_where_it_must_be() -> None:
    """PoCL 7.1 ended the process: "Do not know how to expand the result of this operator!"."""
    problem = next(one for one in PROBLEMS if gemm_pairs.serves(one))
    texts = [one.source for one in gemm_pairs.plan(problem, gemm_pairs.DEFAULT).launches]
    asked = ["vdpbf16ps %2" in text for text in texts]
    assert any(asked)
    pocl, other = "Portable Computing Language", "Intel(R) OpenCL"
    assert [sampled_builds.needs_optimiser(pocl, text) for text in texts] == asked
    assert not any(sampled_builds.needs_optimiser(other, text) for text in texts)


def test_what_is_wrong_with_a_program_is_told(device: Any) -> None:
    from oclgen.opencl.device import BuildError

    with pytest.raises(BuildError, match="no_such_function"):
        device.build("__kernel void k(__global int *x) { x[0] = no_such_function(1); }")
