"""The launch that writes packed weights as plain numbers; it does not know their use."""

from __future__ import annotations

from oclgen.families.packed.packed_formats import stripes
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.plan import Launch, LazyText, Scalar, buffer, ceil_div, round_up
from oclgen.render import dtype_preamble, render

KERNEL = "packed_unpack"
CPU, GPU = (16, 64, 1), (4, 1, 64)
"""Width, steps and work-group: long runs for processors, neighbours side by side for GPUs."""


def shape_for(limits: Limits) -> tuple[int, int, int]:
    """Return width, steps and work-group for a device."""
    return CPU if limits.kind == "cpu" else GPU


def unpacking(problem: PackedProblem, width: int, steps: int, local_t: int, out: str) -> Launch:
    """Return the launch that unpacks the weights of a problem to [n, k] of its dtype.

    Args:
        problem: whose m does not matter.
        width: bytes that are unpacked at once.
        steps: stripes of a work-item.
        local_t: work-items of a group.
        out: role of the buffer that is written.
    """
    packing, cut = problem.packing, stripes(problem, width)

    @LazyText
    def text() -> str:
        preamble = dtype_preamble(problem.dtype)
        return render(KERNEL, preamble=preamble, stripes=cut, steps=steps, local_t=local_t)

    row_stripes = cut.of_row(problem.k)
    scales = buffer("scales") if packing.group is not None else ()
    sizes = (problem.n, problem.k, packing.row_bytes(problem.k), row_stripes)
    return Launch(
        text=text,
        kernel=KERNEL,
        global_size=(round_up(ceil_div(row_stripes, steps), local_t), problem.n),
        local_size=(local_t, 1),
        args=(*buffer("w"), *scales, *buffer(out), *map(Scalar, sizes)),
    )
