"""What the staged Winograd families do differently for images in channels_last.

It is no family. `winograd_inputs` has the transform of inputs in both layouts, `winograd_staged`
the inverse of planes, and the families have the products between them.
"""

from __future__ import annotations

from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.winograd import winograd_common as common
from oclgen.families.winograd.winograd_geometry import Geometry
from oclgen.families.winograd.winograd_inputs import padded_tiles, pixels_group
from oclgen.limits import Limits
from oclgen.plan import Launch, LazyText, Scalar, buffer, round_up
from oclgen.problem import ConvProblem
from oclgen.render import dtype_preamble, render


def conflict(geo: Geometry, vec: int, limits: Limits) -> str | None:
    """Say why pixels cannot be transformed in vectors of `vec` channels on such a device, or None.

    None where images lie as planes.

    Args:
        geo: sizes, and whether images lie as pixels; None is returned where they do not.
        vec: channels of a vector.
        limits: of the device.
    """
    if not geo.pixels:
        return None
    if limits.kind == "cpu":
        return "on CPUs images in channels_last are copied, for families that were made for CPUs"
    if geo.channels % vec or geo.filters % vec:
        return f"vec_t={vec} does not divide {geo.channels} channels and {geo.filters} filters"
    return None


def output_launch(
    problem: ConvProblem, geo: Geometry, vec: int, local: int, *, tiles: int
) -> Launch:
    """Return the launch that transforms M [points, `tiles`, filters] back to the target.

    Args:
        problem: its bias, residual and activation are applied.
        geo: sizes of images and tiles.
        vec: filters of a vector.
        local: work-items of a group, or about as many.
        tiles: tiles of M, those that fill it up included.
    """
    group = pixels_group(geo.filters // vec, local)
    padded, given = padded_tiles(geo, tiles)

    @LazyText
    def text() -> str:
        return render(
            "winograd_output_pixels",
            preamble=dtype_preamble(problem.dtype),
            defines=geo.defines() + padded,
            given=tuple(given),
            output_axis=common.output_axis(geo, vec),
            **epilogue(problem, "(target + offset_target)"),
            vec=vec,
            local_k=group[0],
            local_t=group[1],
        )

    return Launch(
        text=text,
        kernel="winograd_output",
        global_size=(round_up(geo.filters // vec, group[0]), round_up(geo.tiles, group[1])),
        local_size=group,
        args=(
            *buffer("m"),
            *terms(problem),
            *buffer(geo.target),
            *map(Scalar, given.values()),
        ),
    )
