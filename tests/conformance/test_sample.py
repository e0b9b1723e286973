"""A fixed sample of the comparison with the CPU, and that the lists say nothing idle.

The whole comparison is `python -m tests.conformance`; here is what a CI run has time for.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

torch = pytest.importorskip("torch")

from oclgen.opencl.device import devices
from tests.conformance import cases, lists

EVERY = 2
"""One OpInfo in `EVERY` is sampled, at float32 with gradients, with one dense input."""

NO_DOUBLES = "has no cl_khr_fp64"
"""Part of the error of a tensor of float64 on a device that has none."""

SAMPLE = [
    name
    for name in sorted(cases.operators())[::EVERY]
    if torch.float32 in cases.dtypes(cases.operators()[name])
]


@pytest.mark.sampled(4)
@pytest.mark.skipif(not devices(), reason="no OpenCL device")
@pytest.mark.parametrize("name", SAMPLE)
def test_operator_is_the_cpus_and_falls_back_only_as_declared(name: str) -> None:
    outcome = cases.run(name, "float32", 1, 0)
    assert outcome.samples == (0 if lists.entry("unsampled", name) else 1)
    if lists.entry("unsupported", name):
        assert outcome.failures, "it is supported now; take it off the list"
        return
    if any(NO_DOUBLES in failure for failure in outcome.failures):
        assert "cl_khr_fp64" not in devices()[0].limits.extensions
        pytest.skip(f"float64 is a clear error: the device {NO_DOUBLES}")
    assert not outcome.failures
    undeclared = [known for known in outcome.fallbacks if lists.entry("fallbacks", known) is None]
    assert not undeclared


def test_no_fallback_is_declared_for_an_operator_with_a_kernel() -> None:
    names: list[str] = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    for entry in lists.declared("fallbacks"):
        assert [name for name in names if fnmatchcase(name, entry)] == []


@pytest.mark.parametrize("kind", ["unsupported", "unsampled", "incomparable", "positions"])
def test_every_entry_names_an_operator_of_the_database(kind: str) -> None:
    for entry in lists.declared(kind):
        assert any(fnmatchcase(name, entry) for name in cases.operators()), entry
