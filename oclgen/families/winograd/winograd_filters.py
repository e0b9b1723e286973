"""The transform of filters, which the Winograd families share: its text, launch and result."""

from __future__ import annotations

from dataclasses import dataclass

from oclgen.families.parts.strided_weights import strided_weights
from oclgen.families.winograd.winograd_common import FLOAT, axis_function, matrices
from oclgen.families.winograd.winograd_geometry import IMAGES, Geometry
from oclgen.plan import Arg, Launch, LazyText, Scalar, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem
from oclgen.render import dtype_preamble, render, vector

CACHE_LINE = 16
"""Floats of a cache line of 64 bytes."""


def filter_tile(geo: Geometry, width: int, given: tuple[str, ...] = ()) -> str:
    """Return the function `filter_tile`: G g G^T of `width` filters and one channel.

    Args:
        geo: sizes of the filters and of tiles.
        width: filters in the lanes of a vector.
        given: names of sizes that it takes as arguments.
    """
    return render(
        "winograd_filter_tile",
        vec_k=width,
        taps=geo.taps,
        cut=geo.blocks > 1,
        rotated=geo.rotated,
        strided=geo.pixels,
        given=given,
        filter_axis=axis_function("filter_axis", matrices(geo).filter, vector(width)),
    )


@dataclass(frozen=True, slots=True)
class FilterLayout:
    """U as [points][filters / panel][channels][panel], the points `point` floats apart.

    A panel that the filters do not fill repeats the last filter; its results are never stored.
    """

    geo: Geometry
    panel: int
    skewed: bool = False
    """Keep the points from sharing cache sets; dense otherwise, as a GEMM wants its batches."""

    @property
    def point(self) -> int:
        """Floats from one point to the next."""
        dense = round_up(self.geo.filters, self.panel) * self.geo.summed
        return odd_lines(dense) if self.skewed else dense

    @property
    def bytes(self) -> int:
        """Size of the workspace."""
        return FLOAT * self.geo.points * self.point


def _of_filters(geo: Geometry) -> tuple[str, ...]:
    """Return the sizes that say where a filter lies in w."""
    return "FILTERS", "CHANNELS" if geo.blocks == 1 else "SOURCE_CHANNELS"


def odd_lines(floats: int) -> int:
    """Return the next odd number of cache lines, in floats: powers of two share cache sets."""
    return CACHE_LINE * (ceil_div(floats, CACHE_LINE) | 1)


def weights(problem: ConvProblem) -> tuple[Arg, ...]:
    """Return the argument w: where images lie as pixels, its strides may be replaced."""
    return strided_weights(problem) if problem.layout == "nhwc" else buffer("w")


def filter_launch(
    problem: ConvProblem, layout: FilterLayout, vec_k: int, local_k: int, channels_per_item: int
) -> Launch:
    """Return the launch that writes U from w.

    Args:
        problem: a forward or backward-data convolution.
        layout: how U lies.
        vec_k: filters that a work-item transforms.
        local_k: work-items of a group.
        channels_per_item: channels that a work-item transforms.
    """
    geo = layout.geo
    sizes = {
        "FILTERS": geo.filters, "CHANNELS": geo.summed,
        "PANEL": layout.panel, "U_POINT": layout.point,
    }  # fmt: skip
    if geo.blocks > 1:
        sizes["SOURCE_CHANNELS"] = geo.channels

    @LazyText
    def text() -> str:
        return render(
            "winograd_filter",
            preamble=dtype_preamble(problem.dtype),
            defines=geo.defines(IMAGES),
            filter_tile=filter_tile(geo, vec_k, _of_filters(geo)),
            strided=geo.pixels,
            cut=geo.blocks > 1,
            given=tuple(sizes),
            of_tile=_of_filters(geo),
            vec_k=vec_k,
            local_k=local_k,
            channels_per_item=channels_per_item,
        )

    items_k = round_up(geo.filters, layout.panel) // vec_k
    return Launch(
        text=text,
        kernel="winograd_filter",
        global_size=(round_up(items_k, local_k), ceil_div(geo.summed, channels_per_item)),
        local_size=(local_k, 1),
        args=(*weights(problem), *buffer("u"), *map(Scalar, sizes.values())),
        of_weights=True,
    )
