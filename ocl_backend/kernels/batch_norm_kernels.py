"""The kernels of batch normalisation: how items are divided among work-groups, and the launches.

Planes of a channel are divided by `Division`, pixels of channels_last by `PixelDivision`.

The arithmetic is the template's; `ops.norm.batch_norm` has torch's operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.batch_norm_text import Channels
from ocl_backend.kernels.vectors import are_aligned, width_at_once
from ocl_backend.runtime.launch import (
    Argument,
    KernelLaunch,
    LaunchSequence,
    Part,
    Pointer,
    Varying,
    prepare,
)
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import WARP, WORK_ITEMS_PER_UNIT, ceil_div, even_part, round_up
from oclgen.problem import Activation
from oclgen.render import rendered

GROUPS_PER_UNIT = 8
"""Work-groups per compute unit of a GPU that hide memory latency."""
MOST_ITEMS = 256
"""Work-items of a GPU's group up to which the text does not say how many there are: each may have
all registers that an instruction can name. No group for pixels has more."""
COMBINED = 8
"""Channels of a group that combines chunks on a GPU: few, so that there are many groups."""
LEAST_ROWS, MOST_ROWS = 4, 256
"""Pixels of a channel that a work-item sums: at least, on GPUs, and at most, on CPUs."""
FEW_ITEMS = 1 << 14
"""Items of a tensor below which a GPU's kernel takes as long whatever it reads at once: so all
shapes share one that reads single items."""
KEPT_ITEMS = 32
"""Items that a work-item of a GPU keeps in registers, where a group may be large."""


@dataclass(frozen=True, slots=True)
class BatchNormCase:
    """Everything that decides the kernels; sizes are [batch, channels, inner], or, of `pixels`,
    [batch, inner, channels].
    """  # noqa: D205

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
    pixels: bool = False

    @property
    def items(self) -> int:
        """How many the result has."""
        return self.batch * self.channels * self.inner

    @property
    def images(self) -> int:
        """How many of the pointers, the first ones, are of x's size."""
        return 3 if self.direction == "fwd" else 4


@dataclass(frozen=True, slots=True)
class Division:
    """How the work is cut: the template begins with the legend.

    `kept` is a power of two, so that few texts serve all sizes.
    """

    chunk: int
    local: int
    width: int
    kept: int = 0


@dataclass(frozen=True, slots=True)
class PixelDivision:
    """How pixels are cut: the legend stands at the head of `batch_norm_pixels`."""

    chunk: int
    width: int
    local_c: int
    local_r: int


def division_of_pixels(kind: BatchNormCase, limits: Limits) -> PixelDivision:
    """Return the cut with vectors of channels, on GPUs as many as a warp has work-items."""
    rows = kind.batch * kind.inner
    if limits.kind == "cpu":
        width = next(w for w in (16, 8, 4, 2, 1) if kind.channels % w == 0)
        return PixelDivision(min(rows, MOST_ROWS), width, 1, 1)
    width = width_at_once([dtype_of(kind.dtype)], [kind.channels])
    blocks = ceil_div(kind.channels // width, WARP)
    local_c = even_part(kind.channels // width, WARP)
    local_r = max(1, min(MOST_ITEMS, limits.max_work_group) // local_c)
    chunks = max(1, GROUPS_PER_UNIT * limits.compute_units // blocks)
    chunk = max(ceil_div(rows, chunks), LEAST_ROWS * local_r)
    return PixelDivision(min(rows, chunk), width, local_c, local_r)


def _combining(cut: PixelDivision, channels: int) -> PixelDivision:
    """Return the cut of the launch that combines the chunks of `cut`."""
    items = cut.local_c * cut.local_r
    if items == 1:
        return cut
    local_c = even_part(channels, min(COMBINED, items))
    return replace(cut, width=1, local_c=local_c, local_r=items // local_c)


def division(kind: BatchNormCase, limits: Limits) -> Division:
    """Return the cut that keeps a channel in a CPU's cache and all units of a GPU busy."""
    if limits.kind == "cpu":
        width = 16 if kind.inner >= 16 else 1
        return Division(chunk=kind.batch, local=1, width=width)
    width = 4 if kind.inner % 4 == 0 and kind.items >= FEW_ITEMS else 1
    if kept := _kept(kind, limits, width):
        return kept
    wanted = GROUPS_PER_UNIT * limits.compute_units
    chunk = ceil_div(kind.batch, max(1, min(kind.batch, wanted // kind.channels)))
    local = 256
    while local > limits.max_work_group or local > max(32, chunk * kind.inner // width):
        local //= 2
    return Division(chunk, local, width)


def _kept(kind: BatchNormCase, limits: Limits, width: int) -> Division | None:
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
    kept = ceil_div(vectors, local)
    return Division(kind.batch, local, width, 1 << (kept - 1).bit_length())


def _launches(kind: BatchNormCase, aligned: bool) -> tuple[tuple[KernelLaunch, ...], int]:
    """Return the launches, which all take the same arguments, and the items of `partial`.

    `aligned`: they are for tensors of `dtype` that begin where any access of a GPU may.
    """
    limits = devices()[kind.device].limits
    sums = kind.trains or kind.direction == "bwd"
    if kind.pixels:
        return _launches_of_pixels(kind, division_of_pixels(kind, limits), sums, aligned)
    cut = division(kind, limits)
    chunks = ceil_div(kind.batch, cut.chunk)
    steps = [(True, False), (False, True)] if sums and chunks > 1 else [(sums, True)]
    launches = tuple(_launch(kind, cut, chunks, aligned, *step) for step in steps)
    return launches, 2 * chunks * kind.channels if len(steps) > 1 else 0


def _launch(
    kind: BatchNormCase, cut: Division, chunks: int, aligned: bool, sums: bool, writes: bool
) -> KernelLaunch:
    groups = kind.channels * chunks
    factor, shift = divisor(kind.inner)
    counts = {
        "batch": kind.batch, "channels": kind.channels, "inner": kind.inner, "chunk": cut.chunk,
        "inner_factor": factor, "inner_shift": shift,
    }  # fmt: skip
    return _prepared(
        kind, "batch_norm", (groups * cut.local,), (cut.local,), counts, sums=sums, writes=writes,
        local_items=0 if 1 < cut.local <= MOST_ITEMS else cut.local, most=MOST_ITEMS,
        width=cut.width, kept=cut.kept, aligned=aligned,
    )  # fmt: skip


def divisor(number: int) -> tuple[int, int]:
    """Return (factor, shift): `mul_hi(2 * i, factor) >> shift` is `i / number`, i below 2^31.

    GPUs have no instruction that divides integers. A compiler does the same for a constant. After
    Granlund and Montgomery 1994, theorem 4.2.

    Args:
        number: 1 to 2^31 - 1.
    """
    shift = (number - 1).bit_length()
    return ceil_div(1 << (31 + shift), number), shift


def _launches_of_pixels(
    kind: BatchNormCase, cut: PixelDivision, sums: bool, aligned: bool
) -> tuple[tuple[KernelLaunch, ...], int]:
    rows = kind.batch * kind.inner
    chunks = ceil_div(rows, cut.chunk)
    combining = _combining(cut, kind.channels)
    steps = [("sums", cut, chunks), ("combines", combining, 1)] if sums else []
    launches = tuple(
        _prepared(
            kind, "batch_norm_pixels",
            (round_up(kind.channels // by.width, by.local_c), count * by.local_r),
            (by.local_c, by.local_r), {"rows": rows, "channels": kind.channels, "chunk": by.chunk},
            step=step, width=by.width, most=1 if by.local_c * by.local_r == 1 else MOST_ITEMS,
            aligned=aligned,
            text=Channels(dtype_of(kind.dtype), dtype_of(kind.param), by.width, aligned),
        )
        for step, by, count in (*steps, ("writes", cut, chunks))
    )  # fmt: skip
    return launches, 2 * kind.channels * (1 + chunks) if sums else 0


def _prepared(
    kind: BatchNormCase,
    template: str,
    sizes: tuple[int, ...],
    local: tuple[int, ...],
    counts: dict[str, int],
    **values: object,
) -> KernelLaunch:
    """Return a launch of the template, rendered with what both have and with `values`.

    Args:
        kind: what is normalised.
        template: its name.
        sizes: of the launch, in work-items.
        local: of a work-group.
        counts: arguments by name, 0 to 2^32 - 1: sizes, so that layers share a program.
        values: of the template's parameters.
    """
    dtype, param = dtype_of(kind.dtype), dtype_of(kind.param)
    source = rendered(
        template, package="ocl_backend",
        direction=kind.direction, trains=kind.trains, tracks=kind.tracks, affine=kind.affine,
        residual=kind.residual, activation=kind.activation, mask=kind.mask, dtype=dtype,
        param=param, counts=tuple(counts), **values,
    )  # fmt: skip
    params = 6 if kind.direction == "fwd" else 7
    partial_bytes = 8 if dtype.value == "double" else 4
    arguments: list[Argument] = [
        *(Pointer(dtype.item_bytes),) * kind.images,
        *(Pointer(param.item_bytes),) * params,
        Pointer(partial_bytes),
        *(Varying("long" if dtype.value == "double" else "float"),) * 2,
        *map(np.uint32, counts.values()),  # an int's bytes, too
    ]
    name = f"batch_norm_{kind.direction}"
    return prepare(kind.device, source, name, sizes, arguments, local)


class PreparedNorm:
    """The launches of a `BatchNormCase`; call it with what its kernels take, except for `partial`.

    Pointers are in the template's order, 0 where there is no tensor.
    """

    __slots__ = ("_chooses", "_kind", "_sequences")

    def __init__(self, kind: BatchNormCase) -> None:
        self._kind = kind
        self._chooses = devices()[kind.device].limits.kind != "cpu"
        self._sequences = {self._chooses: _sequence(kind, self._chooses)}

    def __call__(self, *values: float) -> None:
        """Enqueue the launches: with the pointers, eps and momentum, as `encode` has them.

        Raises:
            LaunchError, torch.OutOfMemoryError: as a launch.
        """
        self.sequence(values)(*values)

    def sequence(self, values: Sequence[float]) -> LaunchSequence:
        """Return the launches for tensors that lie so."""
        aligned = self._chooses and are_aligned(values[: self._kind.images])
        if aligned not in self._sequences:
            self._sequences[aligned] = _sequence(self._kind, aligned)
        return self._sequences[aligned]


def _sequence(kind: BatchNormCase, aligned: bool) -> LaunchSequence:
    """Return the launches as one, which takes what they do except for `partial`."""
    launches, items = _launches(kind, aligned)
    values = len(launches[0].words) - 1
    numbers = values - 2
    parts = [Part(launch, (*range(numbers), values, numbers, numbers + 1)) for launch in launches]
    if not items:
        return LaunchSequence(kind.device, parts, values, fixed=[0])
    item_bytes = 8 if kind.dtype is torch.float64 else 4
    return LaunchSequence(kind.device, parts, values, [items * item_bytes])
