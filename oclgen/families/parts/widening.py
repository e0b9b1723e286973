"""Images of 16 bits that are widened to fp32 before a processor's kernel broadcasts their elements.

To load, widen and broadcast one element of 16 bits takes six instructions, of which a core begins
one in a cycle; a broadcast of fp32 is part of a load. A kernel broadcasts an element once for each
tap and each block of channels, and so pays that many times what one launch does once. On one core
of a Xeon with AVX-512, a 3x3 layer of 32 to 88 channels in fp16 took 5.6 ms before.
"""

from __future__ import annotations

from math import prod

from oclgen.plan import Launch, LazyText, Scalar, buffer, ceil_div
from oclgen.problem import DTYPES, ConvProblem
from oclgen.render import dtype_preamble, render

WIDENED = "widened"
"""Role of the workspace of widened images."""
ITEMS, WIDTH = 4096, 16
"""Elements of a work-item, and of a vector."""


def is_widened(problem: ConvProblem) -> bool:
    """Say whether images are of 16 bits."""
    return DTYPES[problem.dtype] == 2


def widened_space(problem: ConvProblem, role: str) -> tuple[tuple[str, int], ...]:
    """Return role and bytes of the workspace of widened images, none where they are fp32.

    Args:
        problem: the convolution.
        role: buffer of the images.
    """
    return ((WIDENED, 4 * prod(problem.buffers[role])),) if is_widened(problem) else ()


def widen(problem: ConvProblem, role: str) -> tuple[Launch, ...]:
    """Return the launch that widens images, none where they are fp32.

    Args:
        problem: the convolution.
        role: buffer of the images.
    """
    if not is_widened(problem):
        return ()
    count = prod(problem.buffers[role])

    @LazyText
    def text() -> str:
        preamble = dtype_preamble(problem.dtype)
        return render("widen", preamble=preamble, items=ITEMS, width=WIDTH)

    return (
        Launch(
            text=text,
            kernel="widen",
            global_size=(ceil_div(count, ITEMS), 1, 1),
            local_size=(1, 1, 1),
            args=(*buffer(role), *buffer(WIDENED), Scalar(count, "long")),
        ),
    )
