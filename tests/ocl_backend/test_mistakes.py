"""Likely mistakes of users: the message names what is wrong and what to do.

A forked child: `test_memory`; no compiler: `test_shim`; wrong arguments: `test_wrong_calls`.
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401  (registers the device)
from ocl_backend.runtime import compiling
from oclgen.opencl.health import DeviceHealth, Health
from oclgen.opencl.runtimes import Runtime
from tests import torch_processes
from tests.ocl_backend.cpu_twin import ocl, place

ROOT = Path(__file__).parents[2]


def ends_with(text: str, **variables: str) -> str:
    """Return the error by which a program ends."""
    done = torch_processes.run(text, **variables)
    assert done.returncode == 1
    return done.stderr


def test_no_runtime() -> None:
    said = ends_with(
        "import ocl_backend, torch; torch.ones(1, device='ocl')", OCLGEN_RUNTIMES="none-of-these"
    )
    for part in ("no device ocl:0", "0 OpenCL device", "oclgen[cpu]", "oclgen doctor"):
        assert part in said


def test_a_torch_that_is_too_old() -> None:
    said = ends_with("import torch; torch.__version__ = '2.5.1+cpu'; import ocl_backend")
    assert "torch 2.5.1+cpu is too old" in said and "pip install 'torch>=2.11'" in said
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = ".".join(map(str, compiling.OLDEST))
    assert project["optional-dependencies"]["torch"] == [f"torch>={oldest}"]
    for version in ("2.11.0", "3.0.0", "2.100.1+cpu", "unknown"):
        compiling.check_version(version)


@pytest.mark.usefixtures("any_device")
def test_a_wrong_device_string() -> None:
    count = ocl.device_count()
    with pytest.raises(RuntimeError, match=rf"no device ocl:{count}.*device_count.*doctor"):
        torch.ones(1, device=f"ocl:{count}")
    with pytest.raises(RuntimeError, match="OCL"):
        torch.ones(1, device="OCL")
    with pytest.raises(ValueError, match="expected an ocl device, got cuda"):
        ocl.set_device("cuda")


@pytest.mark.filterwarnings("ignore:.*runs on the CPU")
def test_an_extension_for_cuda_alone(device: Any) -> None:
    library = torch.library.Library("mistakes", "FRAGMENT")
    library.define(f"for_cuda{device.index}(Tensor x) -> Tensor")
    library.impl(f"for_cuda{device.index}", lambda x: x, "CUDA")
    call = getattr(torch.ops.mistakes, f"for_cuda{device.index}")
    with pytest.raises(NotImplementedError, match=r"for CUDA alone.*implementation in PyTorch"):
        call(torch.ones(1, device=place(device)))


def test_two_devices_mixed(device: Any) -> None:
    """Nothing is said of variants that do not build: none was tried."""
    layer = torch.nn.Linear(5, 3).to(place(device))
    with warnings.catch_warnings(record=True) as warned:
        with pytest.raises(RuntimeError, match=r"same device.*cpu.*Move them with \.to\(\)"):
            layer(torch.ones(2, 5))
        assert layer(torch.ones(2, 5, device=place(device))).shape == (2, 3)
    assert not [warning for warning in warned if "does not build" in str(warning.message)]


def test_positions_on_the_device_of_a_tensor_on_the_cpu(device: Any) -> None:
    x, where = torch.zeros(3, 2), torch.tensor([1], device=place(device))
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or .* \(cpu\)"):
        x[where]
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or .* \(cpu\)"):
        x[where] = 1


def test_out_of_memory(device: Any) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="Use a smaller batch, delete tensors, or"):
        torch.empty(1 << 50, device=place(device))


@pytest.mark.usefixtures("any_device")
def test_no_double_precision() -> None:
    said = ends_with(
        "import ocl_backend, torch; torch.ones(1, dtype=torch.float64, device='ocl') * 2",
        OCLGEN_DEVICE_PROFILE="mali_g52",
    )
    assert "has no cl_khr_fp64" in said and "Use float32, or keep this tensor on the CPU" in said


def test_an_old_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor = pytest.importorskip("oclgen_cli.doctor")
    why = "it cannot build and run a kernel: BUILD_PROGRAM_FAILURE"
    old = DeviceHealth("GPU runtime", "OpenCL 1.1", "GPU", "96.43", why, False)
    runtime = Runtime("libold.so", "/etc/OpenCL/vendors/old.icd", Health(devices=(old,)))
    found = [finding for finding in doctor._runtime(runtime) if finding.verdict == "fail"]
    assert [(f.what, f.remedy) for f in found] == [
        ("device GPU", "This device is left out. Update or remove the runtime.")
    ]
    assert why in found[0].found and "OpenCL 1.1, driver 96.43" in found[0].found


def test_a_driver_that_computes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor = pytest.importorskip("oclgen_cli.doctor")
    short = DeviceHealth("rusticl", "OpenCL 3.0", "llvmpipe", "22", fault="loops end too early")
    monkeypatch.delenv("OCLGEN_FAULTY", raising=False)
    left_out = doctor._device(short)
    assert (left_out.verdict, "OCLGEN_FAULTY=1" in left_out.remedy) == ("fail", True)
    assert short.fault in left_out.found
    monkeypatch.setenv("OCLGEN_FAULTY", "1")
    assert doctor._device(short).verdict == "warn"
