"""Implicit-GEMM convolution with tiles in local memory: any stride, padding, dilation and groups.

Made for GPUs, right everywhere; on CPUs, whose local memory is ordinary memory, `conv_register`
is the faster one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TypeGuard

from oclgen.correlation import Correlation, correlations, operands, output_elements
from oclgen.limits import Limits
from oclgen.plan import Launch, Plan, buffer, ceil_div, round_up
from oclgen.planes import PLANES, planes_bytes, sum_planes
from oclgen.problem import ConvProblem, Problem
from oclgen.render import VECTOR_WIDTHS, activation_preamble, dtype_preamble, render

NAME = "conv_gemm"

MAX_ACCUMULATORS = 256
"""Private floats per work-item past which GPU compilers spill to memory."""


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of the kernel; the legends stand at the heads of its templates."""

    tile_m: int
    tile_n: int
    tile_k: int
    local_m: int
    local_n: int
    vec_m: int
    vec_n: int
    stage_a: bool
    stage_b: bool
    pad: int
    buffers: int
    prefetch: bool
    unroll_k: int
    taps_outer: bool
    split_k: int
    m_fastest: bool

    @property
    def local_bytes(self) -> int:
        """Local memory of a work-group."""
        rows = self.stage_a * (self.tile_m + self.pad) + self.stage_b * (self.tile_n + self.pad)
        return 4 * self.buffers * self.tile_k * rows

    def why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers why this config cannot serve `problem` on such a device, or None."""
        return (
            self._tile_why_not("m", self.tile_m, self.local_m, self.vec_m)
            or self._tile_why_not("n", self.tile_n, self.local_n, self.vec_n)
            or self._group_why_not(limits)
            or self._reduction_why_not(problem, limits)
        )

    def _tile_why_not(self, axis: str, tile: int, local: int, vec: int) -> str | None:
        if vec not in VECTOR_WIDTHS:
            return f"vec_{axis}={vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if tile % (local * vec):
            return (
                f"tile_{axis}={tile} is no multiple of local_{axis}={local} times "
                f"vec_{axis}={vec}, {local * vec}"
            )
        staged = self.stage_a if axis == "m" else self.stage_b
        if staged and tile * self.tile_k % (self.local_m * self.local_n):
            return (
                f"a tile of tile_{axis}={tile} x tile_k={self.tile_k} elements cannot be shared "
                f"evenly by local_m={self.local_m} x local_n={self.local_n} work-items"
            )
        return None

    def _group_why_not(self, limits: Limits) -> str | None:
        items = self.local_m * self.local_n
        if items > limits.max_work_group or max(self.local_m, self.local_n) > min(
            limits.max_work_items[:2]
        ):
            return (
                f"local_m={self.local_m} local_n={self.local_n} is a work-group of {items}; the "
                f"device allows {limits.max_work_group} in {limits.max_work_items}"
            )
        accumulators = self.tile_m * self.tile_n // items
        if accumulators > MAX_ACCUMULATORS:
            return (
                f"tile_m={self.tile_m} tile_n={self.tile_n} needs {accumulators} accumulators per "
                f"work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        if self.local_bytes > limits.local_bytes:
            remedy = "buffers=1" if self.buffers > 1 else "a smaller tile_k"
            return (
                f"tile_m={self.tile_m} tile_n={self.tile_n} tile_k={self.tile_k} "
                f"buffers={self.buffers} needs {self.local_bytes} B of local memory; the device "
                f"has {limits.local_bytes}. Try {remedy}"
            )
        return None

    def _reduction_why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        if self.buffers not in (1, 2):
            return f"buffers={self.buffers}; a tile has one buffer or two"
        if self.tile_k % self.unroll_k:
            return f"tile_k={self.tile_k} is no multiple of unroll_k={self.unroll_k}"
        staged = self.stage_a or self.stage_b
        if not staged and (self.pad or self.prefetch or self.buffers == 2):
            return (
                f"pad={self.pad} buffers={self.buffers} prefetch={self.prefetch} say how tiles "
                "are staged, but stage_a=False stage_b=False stages none"
            )
        if self.taps_outer and (problem.direction == "bwd_weights" or _one_tap(problem)):
            return "taps_outer=True changes nothing for one tap or for bwd_weights"
        tiles = max(ceil_div(_reduction(problem), self.tile_k), 1)
        if not 1 <= self.split_k <= tiles:
            return f"split_k={self.split_k}, but the reduction has only {tiles} tiles"
        size = planes_bytes(problem, self.split_k)
        if self.split_k > 1 and size > limits.max_alloc_bytes:
            return (
                f"split_k={self.split_k} needs planes of {size} B in one buffer; the device "
                f"allows {limits.max_alloc_bytes}"
            )
        return None


DEFAULT = Config(
    tile_m=32, tile_n=32, tile_k=8, local_m=8, local_n=8, vec_m=1, vec_n=1,
    stage_a=True, stage_b=True, pad=1, buffers=1, prefetch=False, unroll_k=1,
    taps_outer=False, split_k=1, m_fastest=False,
)  # fmt: skip


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, ConvProblem)


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return one launch (bwd_data: one per phase of the stride), and the sum of the planes."""
    if problem.direction == "bwd_weights":
        text = render("conv_gemm_weights", sizes=_weights_sizes(problem))
        launches = [_launch(problem, config, text, *_weights_extents(problem))]
    else:
        launches = [_correlate(problem, config, part) for part in correlations(problem)]
    if config.split_k == 1:
        return Plan(tuple(launches))
    size = planes_bytes(problem, config.split_k)
    return Plan((*launches, sum_planes(problem, config.split_k)), ((PLANES, size),))


def _correlate(problem: ConvProblem, config: Config, part: Correlation) -> Launch:
    text = render(
        "conv_gemm_correlation", sizes=_correlation_sizes(part), taps_outer=config.taps_outer
    )
    extents = (part.channels, part.batch * part.results, part.reduction)
    return _launch(problem, config, text, *extents)


def _launch(problem: ConvProblem, config: Config, text: str, m: int, n: int, k: int) -> Launch:
    values = asdict(config)
    del values["taps_outer"]
    split, bias = config.split_k > 1, problem.bias and config.split_k == 1
    a, b, c = operands(problem)
    groups_m, groups_n = ceil_div(m, config.tile_m), ceil_div(n, config.tile_n)
    grid = (groups_m * config.local_m, groups_n * config.local_n)
    local = (config.local_m, config.local_n)
    source = render(
        NAME,
        **values,
        preamble=dtype_preamble(problem.dtype),
        activation=activation_preamble("none" if split else problem.activation),
        operands=text,
        bias=bias,
        k_per_plane=round_up(ceil_div(k, config.split_k), config.tile_k),
        plane_elements=output_elements(problem),
    )
    return Launch(
        source=source,
        kernel=NAME,
        global_size=(*_ordered(grid, config), problem.groups * config.split_k),
        local_size=(*_ordered(local, config), 1),
        args=(
            *buffer(a),
            *buffer(b),
            *(buffer("bias") if bias else ()),
            *buffer(PLANES if split else c),
        ),
        local_bytes=config.local_bytes,
    )


def _ordered(sizes: tuple[int, int], config: Config) -> tuple[int, int]:
    return sizes if config.m_fastest else (sizes[1], sizes[0])


def _one_tap(problem: ConvProblem) -> bool:
    return problem.kernel_h * problem.kernel_w == 1


@lru_cache(maxsize=64)
def _reduction(problem: ConvProblem) -> int:
    """Return the depth of the deepest implicit product."""
    if problem.direction == "bwd_weights":
        return _weights_extents(problem)[2]
    return max(part.reduction for part in correlations(problem))


def _weights_extents(p: ConvProblem) -> tuple[int, int, int]:
    taps = p.kernel_h * p.kernel_w
    return p.out_channels // p.groups, p.in_channels // p.groups * taps, p.batch * p.out_h * p.out_w


def _weights_sizes(p: ConvProblem) -> dict[str, int]:
    m, n, k = _weights_extents(p)
    return {
        "M": m, "N": n, "K": k, "GROUPS": p.groups, "DEPTH": p.in_channels // p.groups,
        "HEIGHT": p.height, "WIDTH": p.width, "OUT_H": p.out_h, "OUT_W": p.out_w,
        "KERNEL_H": p.kernel_h, "KERNEL_W": p.kernel_w,
        "STRIDE_H": p.stride_h, "STRIDE_W": p.stride_w, "PAD_H": p.pad_h, "PAD_W": p.pad_w,
        "DILATION_H": p.dilation_h, "DILATION_W": p.dilation_w,
    }  # fmt: skip


def _correlation_sizes(part: Correlation) -> dict[str, int]:
    sizes = {
        "M": part.channels, "N": part.batch * part.results, "K": part.reduction,
        "GROUPS": part.groups, "DEPTH": part.depth, "KERNEL_W": part.kernel_w,
        "WEIGHT_OUT": part.weight_out, "WEIGHT_IN": part.weight_in,
        "WEIGHT_GROUP": part.weight_group,
    }  # fmt: skip
    for name, axis in (("H", part.rows), ("W", part.cols)):
        sizes |= {
            f"RESULTS_{name}": axis.results, f"READ_{name}": axis.read,
            f"WRITTEN_{name}": axis.written, f"STEP_{name}": axis.step,
            # a phase without taps has K 0 and sums nothing, but its text must not divide by zero
            f"TAPS_{name}": max(axis.taps, 1), f"TAP_STEP_{name}": axis.tap_step,
            f"ORIGIN_{name}": axis.origin, f"STORE_STEP_{name}": axis.store_step,
            f"FIRST_{name}": axis.first, f"KERNEL_FIRST_{name}": axis.kernel_first,
            f"KERNEL_STEP_{name}": axis.kernel_step,
        }  # fmt: skip
    return sizes
