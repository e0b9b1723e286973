"""Convolutions of three dimensions whose windows families read in place, against the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.func import functional_call

from ocl_backend.dispatch.tuned import Given, TunedCall, reload_tuned
from ocl_backend.ops.conv import convolution, convolution_volumes
from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_amx
from oclgen.problem import ConvProblem
from oclgen.variant import Variant
from tests.ocl_backend.cpu_twin import check_module, place
from tests.oclgen.amx_emulated import tiles_in_c
from tests.oclgen.mma_emulated import emulate
from tuned_db import Choice, NoVariantError

ALL = {"fwd", "bwd_data", "bwd_weights"}


class InFloats(nn.Module):
    """A layer that is computed in fp32 on the CPU, whose kernels for bf16 differ by processor."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        if not x.is_cpu:
            return self.layer(x)
        wide = {name: one.float() for name, one in self.layer.named_parameters()}
        return functional_call(self.layer, wide, (x.float(),)).to(x.dtype)


class Serving(NamedTuple):
    """A family that serves volumes, for modules of a dtype, and the problems that it was asked.

    Attributes:
        family: its name.
        dtype: of modules and images.
        tolerance: of results; units round fp32 to tf32, of eleven bits.
        chunk: channels of a slice that it serves a multiple of.
        problems: those that it served.
    """

    family: str
    dtype: Any
    tolerance: float
    chunk: int
    problems: list[ConvProblem]

    def check(self, device: Any, layer: Any, *sizes: int) -> None:
        x = torch.randn(sizes, dtype=self.dtype)
        module = InFloats(deepcopy(layer).to(self.dtype))
        check_module(device, module, x, tolerance=self.tolerance)

    @property
    def directions(self) -> set[str]:
        """The directions that the family computes."""
        return ALL if self.family == "conv_mma" else ALL - {"bwd_weights"}

    @property
    def served(self) -> set[str]:
        """The directions of the problems."""
        return {problem.direction for problem in self.problems}


@pytest.fixture(params=["units", "tiles", "tiles of chunks"])
def serving(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """What reads volumes serves them by emulated units or tiles, whatever the device."""
    if request.param == "units":
        serving = Serving("conv_mma", torch.float32, 2.0**-11, 4, [])
    else:
        chunk = 8 if request.param == "tiles of chunks" else 1
        serving = Serving("conv_amx", torch.bfloat16, 1e-2, chunk, [])
    family = FAMILIES[serving.family]

    def serve(operator: str, device: int, problem: ConvProblem, scalars: Any) -> TunedCall:
        assert problem.volume is not None
        if not family.serves(problem) or problem.buffers[problem.read][-1] % serving.chunk:
            raise NoVariantError(problem.key())
        serving.problems.append(problem)
        choice = Choice(problem, Variant(family.NAME, family.DEFAULT), "guess", None, "", 0)
        return TunedCall(operator, device, choice, Given(problem, problem, scalars, None))

    emulate(monkeypatch)
    monkeypatch.setattr(gemm_amx, "tiles", tiles_in_c)
    monkeypatch.setattr(convolution, "_unfolds_pixels", lambda x: True)
    monkeypatch.setattr(convolution_volumes, "tuned_call", serve)
    monkeypatch.setattr(torch.ocl.conv, "allow_tf32", True)
    reload_tuned()
    yield serving
    reload_tuned()


@pytest.mark.parametrize(
    ("layer", "directions"),
    [
        (nn.Conv3d(5, 6, 3, padding=1), ALL),
        (nn.Conv3d(8, 9, (2, 3, 2), (1, 2, 1), (1, 1, 0), (2, 1, 1)), ALL),
        (nn.Conv3d(4, 6, (3, 1, 3), stride=(2, 1, 1), bias=False), {"fwd", "bwd_weights"}),
        (nn.ConvTranspose3d(4, 6, (3, 2, 2), (1, 2, 1), 1), ALL),
    ],
    ids=["same", "dilated", "strided", "transposed"],
)  # fmt: skip
def test_volumes_are_read_where_they_lie(
    device: Any, layer: Any, directions: set[str], serving: Serving
) -> None:
    """Where a family wants whole chunks of channels, they are filled up."""
    serving.check(device, layer, 2, layer.in_channels, 5, 6, 4)
    assert serving.served == directions & serving.directions


def test_weights_of_volumes_need_no_copy(device: Any, serving: Serving) -> None:
    """They are read, and their gradients written, in channels_last, flipped in no direction."""
    layer = nn.Conv3d(6, 5, (2, 3, 2), padding=1)
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last_3d)
    serving.check(device, layer, 2, 6, 4, 5, 3)
    twin = deepcopy(layer).to(place(device), serving.dtype)
    for _ in range(3):  # as recalled, too
        twin.zero_grad()
        x = torch.ones(2, 6, 4, 5, 3, device=place(device), dtype=serving.dtype)
        twin(x).sum().backward()
        grad = twin.weight.grad
        assert grad is not None
        if "bwd_weights" in serving.directions:
            assert grad.is_contiguous(memory_format=torch.channels_last_3d)
    assert serving.served == serving.directions
