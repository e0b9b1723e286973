"""Which cooperative matrices are asked for, on a pretended device: none at hand lists any."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from oclgen.opencl import cooperative, probe
from oclgen.opencl.cooperative import Matrices, unlisted
from oclgen.opencl.device import Device, _instructions
from oclgen.opencl.fragments import COOPERATIVE, UNITS
from tests.oclgen.fragments_emulated import emulate

ALL = frozenset(name for name, unit in UNITS.items() if unit.is_cooperative)
HANDLE = SimpleNamespace(
    int_ptr=7, platform=SimpleNamespace(int_ptr=5), extensions=f"cl_khr_fp16 {COOPERATIVE}"
)
MODULE = Path(cl._cl.__file__)
SQUARE = (16, 16, 16, 0, 0, 1, 1, 0)
TYPES = (
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p,
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip


class Pretended:
    """OpenCL's functions for a device that lists matrices by lanes of a sub-group."""

    def __init__(
        self,
        matrices: Mapping[int, Sequence[tuple[int, ...]]],
        alignment: int = 64,
        multiple: int = 16,
        status: int = 0,
    ) -> None:
        self.matrices, self.status = matrices, status
        self.numbers = {0x107A: alignment, 0x107B: multiple}
        self.query = ctypes.CFUNCTYPE(*TYPES)(self._query)

        def find(platform: Any, name: bytes) -> int | None:
            assert (platform.value, name) == (5, b"clGetDeviceCooperativeMatrixInfoKHR")
            return ctypes.cast(self.query, ctypes.c_void_p).value

        def number(device: Any, name: Any, size: Any, value: Any, written: None) -> int:
            assert (device.value, size.value, written) == (7, 4, None)
            value._obj.value = self.numbers.get(name.value, 0)
            return 0 if name.value in self.numbers else -30

        self.clGetExtensionFunctionAddressForPlatform = find
        self.clGetDeviceInfo = number

    def _query(
        self, device: int, name: int, given: int, lanes: int, room: int, out: int | None, size: int
    ) -> int:
        assert (device, name, given) == (7, 0x1079, 4)
        found = self.matrices.get(ctypes.c_uint32.from_address(lanes).value, [])
        array = (Matrices * len(found))(*(Matrices(*one) for one in found))
        if size:
            ctypes.c_size_t.from_address(size).value = ctypes.sizeof(array)
        if out and found:
            assert room == ctypes.sizeof(array)
            ctypes.memmove(out, array, room)
        return self.status


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., frozenset[str]]:
    """Return what is left out on a device with these functions of OpenCL."""

    def found(opencl: Any) -> frozenset[str]:
        monkeypatch.setattr(ctypes, "CDLL", lambda library: opencl)
        return unlisted(HANDLE, MODULE)

    return found


def test_a_device_without_the_extension_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", None)
    assert unlisted(SimpleNamespace(extensions="cl_khr_fp16"), MODULE) == ALL


def test_those_are_left_out_that_the_device_does_not_list(
    asked: Callable[..., frozenset[str]],
) -> None:
    other_type = (16, 16, 16, 4, 4, 1, 1, 0)
    device = Pretended({16: [(8, 8, 16, 0, 0, 1, 1, 0)], 32: [other_type, SQUARE]})
    assert asked(device) == {"coop_mat16", "coop_mat64"}
    device = Pretended({16: [(8, 16, 16, 0, 0, 1, 1, 0)], 64: [SQUARE], 8: [SQUARE]})
    assert asked(device) == {"coop_mat32"}
    saturating, to_half = (16, 16, 16, 0, 0, 1, 1, 1), (16, 16, 16, 0, 0, 0, 0, 0)
    assert asked(Pretended({32: [saturating, to_half]})) == ALL


def test_a_device_that_asks_for_other_addresses_or_fails_is_left_alone(
    asked: Callable[..., frozenset[str]],
) -> None:
    matrices = {32: [SQUARE]}
    assert asked(Pretended(matrices, alignment=128, multiple=32)) == ALL - {"coop_mat32"}
    assert asked(Pretended(matrices, alignment=256)) == ALL
    assert asked(Pretended(matrices, multiple=64)) == ALL
    assert asked(Pretended(matrices, status=-30)) == ALL
    silent = Pretended(matrices)
    silent.numbers.clear()
    assert asked(silent) == ALL
    without = Pretended(matrices)
    without.clGetExtensionFunctionAddressForPlatform = lambda platform, name: None
    assert asked(without) == ALL


def test_opencl_itself_knows_no_such_function(device: Device) -> None:
    """The real library is asked about a real device, as if that announced the extension."""
    handle = SimpleNamespace(
        int_ptr=device.handle.int_ptr,
        platform=device.handle.platform,
        extensions=COOPERATIVE,
    )
    assert unlisted(handle, MODULE) == ALL


def test_a_listed_unit_is_probed_and_offered(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    plans = {name: probe.probe(name) for name in ALL}
    monkeypatch.setattr(probe, "probes", lambda extensions, kind: plans)
    assert not ALL & _instructions(device)
    monkeypatch.setattr(cooperative, "unlisted", lambda handle, module: frozenset({"coop_mat64"}))
    assert ALL & _instructions(device) == {"coop_mat16", "coop_mat32"}
