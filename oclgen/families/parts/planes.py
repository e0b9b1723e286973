"""Split reductions: fp32 planes of partial sums in a workspace, and the launch that adds them.

It does not know the kernel that fills the planes. It uses no atomics, so sums repeat exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.parts.strided_weights import slice_channels, strided_weights
from oclgen.plan import Arg, Buffer, Launch, LazyText, Plan, Scalar, buffer, ceil_div
from oclgen.problem import ConvProblem, GemmProblem
from oclgen.render import dtype_preamble, render

PLANES = "planes"
"""Role of the workspace."""

LOCAL_SIZE = 64
VECTORS = (4, 2, 1)
"""Elements that a work-item sums, widest first: 128 bits of a plane are loaded at once."""
WEIGHTS_ITEMS = 256
FLOAT_BYTES = 4
FEW = 8
"""Planes up to which their number is a constant, so that all loads are in flight at once."""


class Bias(NamedTuple):
    """Place of an element's bias, a format of its column; of_columns: neighbours have neighbours.

    Else the `vec` elements of a work-item share one.
    """

    place: str
    of_columns: bool


class Filters(NamedTuple):
    """How filters lie in a plane: rows of [taps, padded], of whose columns `depth` are weights.

    A work-group adds `span` columns of all taps of a filter; a row of taps has `kernel_w`. Where
    `together` groups of `channels` filters share rows, the columns of each lie after another's.
    Columns of a volume are taps of `slice` channels each, which lie apart; 0: there is no volume.
    """

    taps: int
    kernel_w: int
    depth: int
    padded: int
    span: int
    together: int = 1
    channels: int = 1
    slice: int = 0


@dataclass(frozen=True, slots=True)
class Sum:
    """Planes [planes][items][rows][columns] in fp32, one after the other, and their sum.

    Attributes:
        problem: its storage, residual and activation; bias and residual are its buffers.
        planes: how many there are.
        shape: items, rows and columns of a plane.
        result: arguments of the result: pointer, offset, and strides if it is `strided` or filters.
        bias: place of an element's bias.
        vec: neighbours of a row that a work-item sums.
        local_size: work-items of a group along columns.
        slices: work-items, a power of two, that share the planes of an element: a single one has
            a long chain of loads where there are many planes of few elements. Then `vec` divides
            a row.
        filters: how filters lie in a plane, if the result is filters; a row of a plane is one.
        strided: rows, and items, of the result lie apart by its strides; else all is one row.
        role: of the workspace; the result may lie in its first plane.
        grows: the number of planes grows with a free size.
        first_row: of a `strided` result, the row that is the planes' first.
        in_flight: loads of filters that a work-item begins before it adds the first: of more planes
            than `FEW`, else of several weights. GPUs want 16; PoCL is half as fast with them.
    """

    problem: GemmProblem | ConvProblem
    planes: int
    shape: tuple[int, ...]
    result: tuple[Arg, ...]
    bias: Bias | None = None
    vec: int = 1
    local_size: int = LOCAL_SIZE
    slices: int = 1
    filters: Filters | None = None
    strided: bool = False
    role: str = PLANES
    grows: bool = False
    first_row: int = 0
    in_flight: int = 1

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory in which sums of slices meet, or filters are turned."""
        if self.filters:
            return FLOAT_BYTES * self.filters.taps * (self.filters.span + 1)
        return (self.slices > 1) * FLOAT_BYTES * self.slices * self.local_size * self.vec

    @property
    def _weights(self) -> int:
        """Weights whose few planes a work-item loads before it keeps a sum."""
        if not self.filters:
            return 1
        rounds = ceil_div(self.filters.taps * self.filters.span, self.local_size)
        return max(min(self.in_flight // self.planes, rounds), 1)

    def behind(self, launch: Launch) -> Plan:
        """Return the plan of a launch that writes the planes; one plane is the output itself."""
        if self.planes == 1:
            return Plan((launch,))
        return Plan((launch, self.launch()), planes_space(self.problem, self.planes))

    def launch(self) -> Launch:
        """Return the launch that adds the planes into the result."""
        items, rows, columns = self.shape
        counted = self.grows or self.planes > FEW
        plane = prod(self.shape)
        groups = (
            ceil_div(self.filters.depth, self.filters.span)
            if self.filters
            else ceil_div(columns, self.local_size * self.vec)
        )

        @LazyText
        def text() -> str:
            return render(
                "sum_planes",
                preamble=dtype_preamble(self.problem.dtype),
                **epilogue(self.problem) | {"bias": self.bias},
                exclusive="" if Buffer(self.role) in self.result else "restrict ",
                planes=0 if counted else self.planes,
                strided=self.strided,
                later=self.first_row > 0,
                columns=columns,
                plane=plane,
                vec=self.vec,
                edge=columns % self.vec != 0 or "n" in self.problem.free,
                local_size=self.local_size,
                slices=self.slices,
                ahead=self.in_flight if counted else 1,
                weights=1 if counted else self._weights,
                filters=self.filters,
            )

        sizes: tuple[Scalar, ...] = () if self.filters else (Scalar(plane, "long"),)
        if self.strided:
            sizes = (Scalar(columns), *sizes)
        if counted:
            sizes += (Scalar(self.planes),)
        if self.first_row:
            sizes += (Scalar(self.first_row),)
        return Launch(
            text=text,
            kernel="sum_planes",
            global_size=(self.local_size * groups, self.slices * rows, items),
            local_size=(self.local_size, self.slices, 1),
            args=(*buffer(self.role), *terms(self.problem), *self.result, *sizes),
            local_bytes=self.local_bytes,
        )


def planes_bytes(problem: GemmProblem | ConvProblem, planes: int) -> int:
    """Return the size of the workspace: one fp32 copy of the output per plane."""
    return FLOAT_BYTES * planes * prod(problem.buffers[problem.output])


def planes_space(problem: GemmProblem | ConvProblem, planes: int) -> tuple[tuple[str, int], ...]:
    """Return role and bytes of the workspace of several planes; none of one."""
    return ((PLANES, planes_bytes(problem, planes)),) if planes > 1 else ()


def sum_planes(problem: ConvProblem, planes: int, slices: int = 1) -> Sum:
    """Return the sum of dense planes into the problem's dense output, act(sum + bias + residual).

    Args:
        problem: its bias, residual and activation are applied.
        planes: planes of fp32, each as large as the output.
        slices: work-items, a power of two, that share the planes of an element.
    """
    elements = prod(problem.buffers[problem.output])
    grows = problem.free and problem.direction != "bwd_weights"
    even = elements // problem.batch if grows else elements
    channels, per_channel = problem.out_channels, problem.out_h * problem.out_w
    bias, run = None, elements
    if problem.bias and problem.layout == "nhwc":
        bias, run = Bias(f"{{}} % {channels}", of_columns=True), channels
    elif problem.bias:
        bias, run = Bias(f"{{}} / {per_channel} % {channels}", of_columns=False), per_channel
    vec = next(width for width in VECTORS if even % width == 0 and run % width == 0)
    shape, result, local_size = (1, 1, elements), buffer(problem.output), LOCAL_SIZE // slices
    return Sum(problem, planes, shape, result, bias, vec, local_size, slices)


@lru_cache(maxsize=64)
def sum_of_planes(problem: ConvProblem, planes: int) -> Launch:
    """Return the launch of `sum_planes`, which candidates share."""
    return sum_planes(problem, planes).launch()


def sum_weights(p: ConvProblem, planes: int, padded: int, span: int, together: int = 1) -> Sum:
    """Return the sum of planes [out_channels, taps, padded] into w.

    A caller may replace the strides of w.

    Args:
        p: a problem of direction "bwd_weights".
        planes: planes of fp32.
        padded: depths of a filter's tap in a plane, at least those that w has.
        span: depths that a work-group sums.
        together: groups whose depths share a row of `padded`; filters are zero at other groups'.
    """
    taps = p.kernel_h * p.kernel_w
    depth, channels = p.in_channels // p.groups, p.out_channels // p.groups
    apart = slice_channels(p)
    filters = Filters(taps, p.kernel_w, depth, padded, span, together, channels, apart)
    shape, result = (1, p.out_channels, taps * padded), strided_weights(p)
    return Sum(p, planes, shape, result, local_size=WEIGHTS_ITEMS, filters=filters)
