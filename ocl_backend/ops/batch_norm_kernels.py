"""The kernels of batch normalisation: how a channel is divided among work-groups, and the launches.

The arithmetic is the template's; what torch asks for is `batch_norm`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from ocl_backend.dtypes import dtype_of
from ocl_backend.launch import Argument, Launch, Pointer, Varying, prepare
from oclgen.device import devices
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import Activation
from oclgen.render import render

GROUPS_PER_UNIT = 8
"""Work-groups per compute unit of a GPU that hide memory latency."""
WORK_ITEMS_PER_UNIT = 2048
"""Work-items that a compute unit of a GPU holds at once."""
KEPT_ITEMS = 32
"""Items that a work-item of a GPU keeps in registers, where a group may be large."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Everything that decides the kernels; sizes are [batch, channels, inner]."""

    direction: Literal["fwd", "bwd"]
    device: int
    dtype: torch.dtype
    param: torch.dtype
    batch: int
    channels: int
    inner: int
    trains: bool
    tracks: bool
    affine: bool
    residual: bool = False
    activation: Activation = "none"
    mask: Activation = "none"

    @property
    def items(self) -> int:
        """How many the result has."""
        return self.batch * self.channels * self.inner


@dataclass(frozen=True, slots=True)
class Division:
    """How the work is cut: the legend stands at the head of the template."""

    chunk: int
    local: int
    width: int
    kept: int = 0


def division(kind: Kind, limits: Limits) -> Division:
    """Return the cut that keeps a channel in a CPU's cache and all units of a GPU busy."""
    if limits.kind == "cpu":
        width = 16 if kind.inner >= 16 else 1
        return Division(chunk=kind.batch, local=1, width=width)
    width = 4 if kind.inner % 4 == 0 else 1
    if kept := _kept(kind, limits, width):
        return kept
    wanted = GROUPS_PER_UNIT * limits.compute_units
    chunk = ceil_div(kind.batch, max(1, min(kind.batch, wanted // kind.channels)))
    local = 256
    while local > limits.max_work_group or local > max(32, chunk * kind.inner // width):
        local //= 2
    return Division(chunk, local, width)


def _kept(kind: Kind, limits: Limits, width: int) -> Division | None:
    """Return the cut by which one group keeps a channel in registers, or None if it cannot.

    Groups grow until they fill the device. Backward, with twice as much to keep, it did not pay.
    """
    if kind.direction == "bwd" or not kind.trains:
        return None
    vectors = kind.batch * kind.inner // width
    most = KEPT_ITEMS // width
    local = 64
    while local < limits.max_work_group and (
        vectors > most * local or kind.channels * local < WORK_ITEMS_PER_UNIT * limits.compute_units
    ):
        local *= 2
    if vectors > most * local or local > limits.max_work_group:
        return None
    while local > 32 and local // 2 >= vectors:
        local //= 2
    return Division(kind.batch, local, width, ceil_div(vectors, local))


def _launches(kind: Kind) -> tuple[tuple[Launch, ...], int]:
    """Return the launches, which all take the same arguments, and the items of `partial`."""
    limits = devices()[kind.device].limits
    cut = division(kind, limits)
    chunks = ceil_div(kind.batch, cut.chunk)
    sums = kind.trains or kind.direction == "bwd"
    steps = [(True, False), (False, True)] if sums and chunks > 1 else [(sums, True)]
    launches = tuple(_launch(kind, cut, chunks, *step) for step in steps)
    return launches, 2 * chunks * kind.channels if len(steps) > 1 else 0


def _launch(kind: Kind, cut: Division, chunks: int, sums: bool, writes: bool) -> Launch:
    dtype, param = dtype_of(kind.dtype), dtype_of(kind.param)
    source = render(
        "batch_norm", package="ocl_backend",
        direction=kind.direction, sums=sums, writes=writes, trains=kind.trains,
        tracks=kind.tracks, affine=kind.affine, residual=kind.residual,
        activation=kind.activation, mask=kind.mask, dtype=dtype, param=param, batch=kind.batch,
        channels=kind.channels, inner=kind.inner, chunk=cut.chunk, local_items=cut.local,
        width=cut.width, kept=cut.kept,
    )  # fmt: skip
    images = 3 if kind.direction == "fwd" else 4
    params = 6 if kind.direction == "fwd" else 7
    partial_bytes = 8 if dtype.value == "double" else 4
    arguments: list[Argument] = [
        *(Pointer(dtype.item_bytes),) * images,
        *(Pointer(param.item_bytes),) * params,
        Pointer(partial_bytes),
        *(Varying("float"),) * 2,
    ]
    groups = kind.channels * chunks
    name = f"batch_norm_{kind.direction}"
    return prepare(kind.device, source, name, (groups * cut.local,), arguments, (cut.local,))


class Prepared:
    """The launches of a `Kind`; call it with what its kernels take, but for `partial`.

    Pointers are in the template's order, 0 where there is no tensor.
    """

    __slots__ = ("_empty", "_launches", "_partial")

    def __init__(self, kind: Kind) -> None:
        self._launches, self._partial = _launches(kind)
        real = torch.float64 if kind.dtype is torch.float64 else torch.float32
        self._empty = partial(torch.empty, dtype=real, device=torch.device("ocl", kind.device))

    def __call__(self, *values: float) -> None:
        """Enqueue the launches: with the pointers, eps and momentum.

        Raises:
            LaunchError, torch.OutOfMemoryError: as a launch.
        """
        *pointers, eps, momentum = values
        workspace = self._empty(self._partial) if self._partial else None
        address = workspace.data_ptr() if workspace is not None else 0
        for launch in self._launches:
            launch(*pointers, address, eps, momentum)
