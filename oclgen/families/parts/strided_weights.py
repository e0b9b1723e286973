"""The weights of a convolution as an argument whose strides a caller may replace at launch.

So weights in channels_last, and their gradients, need no copy.
"""

from __future__ import annotations

from oclgen.plan import Arg, Scalar, buffer
from oclgen.problem import ConvProblem
from oclgen.render import render

STRIDES = ("w_stride_0", "w_stride_1", "w_stride_2", "w_stride_3")
"""Names of the scalars that are the strides of w [out_channels, in_channels, rows, columns]."""


VOLUME_STRIDES = (*STRIDES, "w_stride_slice", "w_slice_channels")
"""The same of a volume, whose channels lie apart by taps along the depth: the stride of these taps,
and how many channels of a slice w has. Images may have more, to fill chunks."""


def store_depths(vec: int) -> str:
    """Return the text of `store_depths`, which stores a tap of `vec` neighbouring input channels.

    Args:
        vec: lanes of a vector.
    """
    return render("store_depths", vec=vec)


def slice_channels(p: ConvProblem) -> int:
    """Return the channels of a slice of a volume, which w has for each tap; 0: there is none."""
    return p.buffers[p.read][-1] if p.volume else 0


def strided_weights(p: ConvProblem) -> tuple[Arg, ...]:
    """Return the argument w: pointer and offset, and its strides by result channel, channel that is
    summed over, row and column of taps. A caller may replace these, by the names of `STRIDES`.

    Of a volume two more follow, see `VOLUME_STRIDES`.
    """  # noqa: D205
    depth, taps = p.in_channels // p.groups, p.kernel_h * p.kernel_w
    lying = (1, p.kernel_w * depth, depth) if p.turns_weights else (taps, p.kernel_w, 1)
    steps = dict(zip(STRIDES, (depth * taps, *lying), strict=True))
    out, into, *rest = (Scalar(step, "long", name) for name, step in steps.items())
    across = (into, out) if p.direction == "bwd_data" else (out, into)
    if channels := slice_channels(p):
        apart, own = VOLUME_STRIDES[len(STRIDES) :]
        rest += [
            Scalar(channels * int(across[1].value), "long", apart),
            Scalar(channels, "int", own),
        ]
    return (*buffer("w"), *across, *rest)
