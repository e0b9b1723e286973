"""Processes that train together: `torch.distributed` on the device, as torchrun starts it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (compiles the shim once, not in both processes)
from tests import torch_processes

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.usefixtures("any_device"),
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="this torch has no torch.distributed with gloo",
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", ["two_processes", "two_compiled"])
def test_two_processes_agree_with_the_cpu(program: str) -> None:
    """Collectives of three dtypes, DDP, FSDP2 and DTensor; compiled FSDP2 and its checkpoints."""
    done = torch_processes.run_module(
        *("torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", f"tests.ocl_backend.{program}"),
        PYTHONPATH=os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
    )
    # two processes write to one pipe: their texts meet in any order, also within a line
    said = sorted(re.findall(r"process \d agrees", done.stdout))
    assert said == ["process 0 agrees", "process 1 agrees"], done.stderr[-4000:]
    assert done.returncode == 0, done.stderr[-4000:]


def test_torch_knows_the_backend_by_the_devices_name() -> None:
    assert torch.distributed.Backend.default_device_backend_map["ocl"] == "ocl"
    assert torch.distributed.is_backend_available("ocl")


@pytest.mark.filterwarnings("ignore:PyTorch is not compiled with NCCL")
@pytest.mark.parametrize("several", [False, True], ids=["one device", "all devices"])
def test_data_parallel_gives_the_modules_results_and_gradients(several: bool) -> None:
    count = torch.ocl.device_count() if several else 1
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    images = torch.randn(5, 3)
    expected = model(images)
    expected.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    parallel = torch.nn.DataParallel(model.to("ocl:0"), device_ids=list(range(count)))
    result = parallel(images)
    assert result.device == torch.device("ocl", 0)
    torch.testing.assert_close(result.cpu(), expected)
    result.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), gradient)


def test_complex_numbers_are_shared_out_and_gathered() -> None:
    from torch.nn.parallel.scatter_gather import gather, scatter

    values = torch.randn(3, 2, dtype=torch.complex64, requires_grad=True)
    places = [torch.ocl.device_count() - 1, 0]
    parts = scatter(values, places)
    assert [part.shape[0] for part in parts] == [2, 1]
    assert [part.device.index for part in parts] == places
    result = gather(parts, -1)
    assert torch.equal(result, values)
    result.abs().sum().backward()
    torch.testing.assert_close(values.grad, torch.sgn(values.detach()))
