"""The transforms of the staged Winograd families where images lie as pixels, in channels_last.

It is no family. What lies as planes of channels is transformed by `winograd_common.input_launch`
and by `winograd_staged`; the products between the transforms are the families' in both layouts.
"""

from __future__ import annotations

from oclgen.families import winograd_common as common
from oclgen.families.winograd_common import Geometry
from oclgen.limits import Limits
from oclgen.plan import Launch, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem
from oclgen.render import activation_preamble, dtype_preamble, render

WARP = 32
"""Neighbouring work-items whose loads and stores a GPU joins."""


def conflict(geo: Geometry, vec: int, limits: Limits) -> str | None:
    """Say why pixels cannot be transformed in vectors of `vec` channels on such a device, or None.

    None where images lie as planes.
    """
    if not geo.pixels:
        return None
    if limits.kind == "cpu":
        return "on CPUs images in channels_last are copied, for families that were made for CPUs"
    if geo.channels % vec or geo.filters % vec:
        return f"vec_t={vec} does not divide {geo.channels} channels and {geo.filters} filters"
    return None


def input_launch(
    dtype: str,
    geo: Geometry,
    role: str,
    axis: str,
    vec: int,
    local: int,
    *,
    tiles: int,
    read: str = "IN_TILE",
    slice_t: int = 0,
) -> Launch:
    """Return the launch that transforms `tiles` tiles of the source, the real ones and zeros.

    `axis` is the text of `input_axis`; `read` rows and columns of a tile are read from the source.
    V, the buffer of that `role`, is [points, tiles, channels], or, in slices of `slice_t` tiles,
    [slices, points, slice_t, channels].
    """
    group = pixels_group(geo.channels // vec, local)
    source = render(
        "winograd_input_pixels",
        preamble=dtype_preamble(dtype),
        defines=f"{geo.defines()}\n#define TILES_PADDED {tiles}",
        input_axis=axis,
        vec=vec,
        local_c=group[0],
        local_t=group[1],
        read=read,
        slice=slice_t,
    )
    return Launch(
        source=source,
        kernel="winograd_input",
        global_size=(round_up(geo.channels // vec, group[0]), round_up(tiles, group[1])),
        local_size=group,
        args=(*buffer(geo.source), *buffer(role)),
    )


def output_launch(
    problem: ConvProblem, geo: Geometry, vec: int, local: int, *, tiles: int
) -> Launch:
    """Return the launch that transforms M [points, `tiles`, filters] back to the target."""
    group = pixels_group(geo.filters // vec, local)
    source = render(
        "winograd_output_pixels",
        preamble=dtype_preamble(problem.dtype),
        activation=activation_preamble(problem.activation),
        defines=f"{geo.defines()}\n#define TILES_PADDED {tiles}",
        output_axis=common.output_axis(geo, vec),
        bias=problem.bias,
        vec=vec,
        local_k=group[0],
        local_t=group[1],
    )
    bias = buffer("bias") if problem.bias else ()
    return Launch(
        source=source,
        kernel="winograd_output",
        global_size=(round_up(geo.filters // vec, group[0]), round_up(geo.tiles, group[1])),
        local_size=group,
        args=(*buffer("m"), *bias, *buffer(geo.target)),
    )


def pixels_group(count: int, local: int) -> tuple[int, int]:
    """Return the work-items of a group of about `local`, along `count` vectors of channels and
    along tiles: of the channels at most a warp, in equal parts, so that few work-items are idle.
    """  # noqa: D205
    lanes = ceil_div(count, ceil_div(count, min(WARP, local)))
    return lanes, local // lanes
