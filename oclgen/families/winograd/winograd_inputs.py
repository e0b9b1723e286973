"""The transform of tiles of images, which the staged Winograd families share, in both layouts."""

from __future__ import annotations

from typing import Any

from oclgen.families.winograd.winograd_geometry import Geometry
from oclgen.plan import WARP, Arg, Launch, LazyText, Scalar, buffer, even_part, round_up
from oclgen.render import dtype_preamble, render


def input_launch(
    dtype: str,
    geo: Geometry,
    role: str,
    axis: LazyText,
    vec: int,
    local: int,
    *,
    tiles: int,
    read: str = "IN_TILE",
    slice_t: int = 0,
) -> Launch:
    """Return the launch that transforms tiles of the source, the real ones and zeros.

    V is [points, channels, tiles], or in slices [slices, points, channels, slice_t]; of pixels,
    channels come last.

    Args:
        dtype: storage of the source.
        geo: sizes of images and tiles.
        role: of the buffer of V.
        axis: text of `input_axis`.
        vec: tiles of a channel, or of pixels channels of a tile, that a work-item transforms.
        local: work-items of a group, or about as many.
        tiles: tiles to write, those that fill V up included.
        read: rows and columns of a tile that are read from the source.
        slice_t: tiles of a slice; 0: V is not cut.
    """
    shape: dict[str, Any]
    (padded, sizes), group = padded_tiles(geo, tiles), input_group(geo, vec, local)
    if geo.pixels:
        template = "winograd_input_pixels"
        shape = {"vec": vec, "local_c": group[0], "local_t": group[1], "slice": slice_t}
        items = (geo.summed // vec, tiles)
    else:
        template = "winograd_input"
        sizes = geo.of_images | {"TILES_PADDED": tiles} | ({"SLICE": slice_t} if slice_t else {})
        padded = ""
        shape = {"vec_t": vec, "local_t": local, "sliced": bool(slice_t)}
        items = (tiles // vec, geo.summed)

    @LazyText
    def text() -> str:
        return render(
            template,
            preamble=dtype_preamble(dtype),
            defines=geo.defines(sizes) + padded,
            input_axis=str(axis),
            read=read,
            given=tuple(sizes),
            cut=geo.blocks > 1,
            **shape,
        )

    args: tuple[Arg, ...] = (
        *buffer(geo.source), *buffer(role), *map(Scalar, sizes.values()),
    )  # fmt: skip
    rounded = round_up(items[0], group[0]), round_up(items[1], group[1])
    return Launch(text, "winograd_input", rounded, group, args)


def padded_tiles(geo: Geometry, tiles: int) -> tuple[str, dict[str, int]]:
    """Return how kernels of pixels learn the tiles of V or M: lines of text, or arguments by name.

    Args:
        geo: sizes of images and tiles; of a free batch all tiles are arguments.
        tiles: of V or M, those that fill it up included.
    """
    if geo.free:
        return "", {"TILES": geo.tiles, "TILES_PADDED": tiles}
    return f"\n#define TILES_PADDED {tiles}", {}


def pixels_group(count: int, local: int) -> tuple[int, int]:
    """Return the work-items of a group of about `local`, along `count` vectors of channels and
    along tiles: of the channels at most a warp, in equal parts, so that few work-items are idle.
    """  # noqa: D205
    lanes = even_part(count, min(WARP, local))
    return lanes, local // lanes


def input_group(geo: Geometry, vec: int, local: int) -> tuple[int, int]:
    """Return the work-group of the transform of inputs: see `input_launch`.

    Args:
        geo: sizes of images and tiles.
        vec: tiles of a channel, or of pixels channels of a tile, of a work-item.
        local: work-items of a group.
    """
    return pixels_group(geo.summed // vec, local) if geo.pixels else (local, 1)
