"""Networks on devices that are not here: profiles laid over a processor, a process each.

Under a profile what the device lacks is refused as the real one's compiler and driver refuse it, so
a network that runs asks for nothing beyond it.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests import torch_processes

NETWORKS = """
import torch
from torch import nn
import ocl_backend
from tests import sampled_builds

sampled_builds.begin()

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True)
        self.out = nn.Linear(32, 10)
    def forward(self, x):
        return self.out(self.layer(self.embedding(x)).mean(1))

def images():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, groups=16, padding=1), nn.Conv2d(16, 32, 1), nn.MaxPool2d(2),
        nn.Conv2d(32, 8, 5, stride=2, padding=2), nn.Flatten(), nn.Linear(240, 10))

def agree(build, x):
    torch.manual_seed(0)
    here, there = build(), build()
    there.load_state_dict(here.state_dict())
    found = []
    for model, device in ((here, "cpu"), (there.to("ocl"), "ocl")):
        out = model(x.to(device))
        nn.functional.cross_entropy(out, torch.arange(4, device=device)).backward()
        found.append([out, *(p.grad for p in model.parameters())])
    for on_cpu, on_ocl in zip(*found):
        torch.testing.assert_close(on_ocl.cpu(), on_cpu, rtol=1e-3, atol=1e-5)

agree(images, torch.randn(4, 3, 24, 20))
agree(Words, torch.randint(0, 50, (4, 13)))
assert torch.ocl.fallbacks() == {}, torch.ocl.fallbacks()
print("name", torch.ocl.get_device_name(0))
"""
LACKING = """
import torch
import ocl_backend
from oclgen.opencl.device import BuildError, LaunchError, devices
from ocl_backend.runtime import launch
from tests import sampled_builds

sampled_builds.begin()
for make in (
    lambda: torch.zeros(3, dtype=torch.float64, device="ocl"),
    lambda: torch.zeros(3, dtype=torch.complex128).to("ocl"),
    lambda: torch.zeros(3, device="ocl").double(),
    lambda: torch.nn.Linear(3, 2).double().to("ocl"),
):
    try:
        make()
    except TypeError as error:
        assert "has no cl_khr_fp64" in str(error) and "Use float32" in str(error), error
    else:
        raise AssertionError("a tensor of doubles on a device without fp64")
x = torch.tensor([0.5, 1.25], device="ocl")
assert repr(x * 2.5) == "tensor([1.2500, 3.1250], device='ocl:0')", repr(x * 2.5)
count = torch.bincount(torch.tensor([1, 3, 1], device="ocl"))
assert count.tolist() == [0, 2, 0, 1]
at = (torch.tensor([1, 1], device="ocl"),)
put = torch.zeros(3, dtype=torch.int64, device="ocl")
assert put.index_put_(at, torch.tensor([2, 5], device="ocl"), accumulate=True).tolist() == [0, 7, 0]
assert torch.ocl.fallbacks() == {}, torch.ocl.fallbacks()

def refused(kind, text, size, local):
    argument = launch.Pointer(4)
    try:
        run = launch.prepare(0, "__kernel void k(__global float *a, long at) {" + text + "}", "k",
                             size, [argument], local)
        run(x.data_ptr())
        torch.ocl.synchronize()
    except kind as error:
        return str(error)
    raise AssertionError(text)

assert "cl_khr_fp64" in refused(BuildError, "a[0] = (double)a[1];", (1,), (1,))
assert "allows 1024" in refused(LaunchError, "a[0] = 1;", (2048,), (2048,))
assert "do not divide" in refused(LaunchError, "a[0] = 1;", (100,), (64,))
local = "__local float t[10000]; t[get_local_id(0)] = a[0]; barrier(1); a[0] = t[1];"
assert "40000 B of local memory" in refused(RuntimeError, local, (64,), (64,))
most = devices()[0].limits
try:
    torch.empty(most.max_alloc_bytes + 1, dtype=torch.uint8, device="ocl")
except torch.OutOfMemoryError as error:
    assert "the largest single buffer 1024.00 MiB" in str(error), error
else:
    raise AssertionError("a buffer beyond the largest")
print("name", torch.ocl.get_device_name(0))
"""


def run_under(profile: str, script: str) -> str:
    """Run a script in a process of its own; return the name of its device."""
    done = torch_processes.run(script, OCLGEN_DEVICE_PROFILE=profile)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.rpartition("name ")[2]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "profile",
    ["adreno_750", "apple_m1", "arc_a770", "gfx1100", "gfx90a", "gtx_770", "mali_g52", "tahiti"],
)
def test_networks_and_their_gradients_agree_with_the_cpu(profile: str, any_device: None) -> None:
    assert f"(profile {profile} on " in run_under(profile, NETWORKS)


def test_what_the_device_lacks_is_an_error_or_done_without(any_device: None) -> None:
    """fp64 is an error; 64-bit atomics are not missed; sizes and texts are refused."""
    assert run_under("adreno_750", LACKING).startswith("QUALCOMM Adreno(TM) 750")
