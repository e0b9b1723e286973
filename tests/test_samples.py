"""What a run leaves out is a sample's rest, and programs come from a process that ends in time."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests import sampled_builds, samples
from tests.sampled_builds import Compiler

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


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    made = Compiler()
    yield made
    made.end()


def fresh() -> str:
    """Return a program that no cache holds."""
    return f"__kernel void k_{uuid.uuid4().hex}(__global int *x) {{ x[get_global_id(0)] = 1; }}"


def test_a_compiler_ends_after_its_life_and_another_one_takes_its_place(
    device: Any, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled_builds, "LIFE", 2)
    asked = device.handle.platform.name, device.handle.name
    alive = []
    for _ in range(3):
        assert compiler.compile(*asked, fresh(), [])
        alive.append(compiler.is_alive)
    assert alive == [True, False, True]


def test_a_compiler_without_the_device_says_so(device: Any, compiler: Compiler) -> None:
    assert not compiler.compile("no such platform", device.handle.name, fresh(), [])
    assert not compiler.is_alive


def test_programs_are_taken_from_the_cache_that_the_compiler_fills(device: Any) -> None:
    if not sampled_builds.is_elsewhere(device.handle):
        pytest.skip("this device's programs are built in this process")
    built = device.build(fresh())
    assert built._build_duration_info[0] == "cache retrieval"


def test_what_is_wrong_with_a_program_is_told(device: Any) -> None:
    from oclgen.opencl.device import BuildError

    with pytest.raises(BuildError, match="no_such_function"):
        device.build("__kernel void k(__global int *x) { x[0] = no_such_function(1); }")
