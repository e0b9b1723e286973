"""Matrices packed for CPUs so that neighbouring rows become the lanes of a vector.

It knows matrices and the weights of convolutions; what is computed of them is its kernels'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oclgen.families.parts.packing import PACKED, Packing
from oclgen.families.parts.strided_weights import strided_weights
from oclgen.plan import Buffer, Launch, LazyText, buffer, ceil_div
from oclgen.problem import ConvProblem
from oclgen.render import dtype_preamble, render


def lanes(role: str, dtype: str, batch: int, rows: int, cols: int, block: int) -> Packing:
    """Return the packing of dense matrices [batch, rows, cols] whose rows become lanes.

    Args:
        role: buffer of the matrices.
        dtype: their storage.
        batch: how many there are.
        rows: of each.
        cols: of each, contiguous.
        block: rows that are packed together.
    """
    return Packing(PACKED, buffer(role), dtype, True, batch, rows, cols, block)


MOST_SQUARES, LEAST_ITEMS = 16, 4
"""Squares of rows and depths that a work-item packs at most, since a work-item takes as long to
start as to pack one; and work-items that share those of the same rows."""
LANE_STEPS = ("row_step", "depth_step", "down_step", "across_step")


def pack_lanes(packing: Packing, vec: int) -> Launch:
    """Return the launch that packs for vectors of `vec` lanes, which divide a tile."""
    steps = dict(zip(LANE_STEPS, (packing.k, 1, 0, 0), strict=True))
    at = f"matrix * {packing.extent * packing.k}L"
    return pack_matrices(packing, vec, packing.k, 1, steps, at)


def pack_weights(
    problem: ConvProblem,
    packing: Packing,
    channels: int,
    depth: int,
    vec: int,
    pairs: bool = False,
    mirrored: bool = False,
) -> Launch:
    """Return the launch that packs weights of any strides, the depths of a tap side by side.

    A caller may replace the strides, as those of `strided_weights`.

    Args:
        problem: forward or backward-data.
        packing: of a matrix [channels, depth * taps] for each group; taps of slices follow each
            other.
        channels: of a group's result.
        depth: channels of a group, or of a slice of a volume, that are summed over.
        vec: lanes of a vector, which divide a tile.
        pairs: as `pack_matrices` has it.
        mirrored: the same.
    """
    forward = problem.direction == "fwd"
    step = f"{channels} * row_step" if forward else f"{depth} * depth_step"
    strided = replace(packing, source=strided_weights(problem))
    steps = dict.fromkeys(LANE_STEPS)
    slice_taps = problem.kernel_h * problem.kernel_w if problem.volume else 0
    return pack_matrices(
        strided, vec, depth, problem.kernel_w, steps, f"matrix * {step}", pairs, slice_taps,
        mirrored,
    )  # fmt: skip


def pack_groups(
    problem: ConvProblem,
    packing: Packing,
    channels: int,
    depth: int,
    together: int,
    mirrored: bool,
) -> Launch:
    """Return the launch that packs weights of 16 bits as pairs, with zeros between groups.

    Args:
        problem: forward or backward-data.
        packing: of a matrix for `together` groups, one behind the other in rows and depths.
        channels: of a group's result.
        depth: channels of a group that are summed over.
        together: groups that share a matrix.
        mirrored: as `pack_matrices` has it.
    """
    forward = problem.direction == "fwd"
    words = ceil_div(depth * together, 2)
    taps = packing.k // words

    @LazyText
    def text() -> str:
        return render(
            "pack_groups",
            forward=forward,
            channels=channels,
            depth=depth,
            together=together,
            words=words,
            taps=taps,
            kernel_w=problem.kernel_w,
            block=packing.tile,
            mirrored=mirrored,
        )

    return Launch(
        text=text,
        kernel="pack_groups",
        global_size=(taps * words, packing.tiles, packing.batch),
        local_size=(1, 1, 1),
        args=(*strided_weights(problem), *buffer(packing.workspace)),
        of_weights=True,
    )


def pack_matrices(
    packing: Packing,
    vec: int,
    depth: int,
    kernel_w: int,
    steps: Mapping[str, int | None],
    matrix_at: str,
    pairs: bool = False,
    slice_taps: int = 0,
    mirrored: bool = False,
) -> Launch:
    """Return the launch that packs matrices [rows, taps, depth] of any strides as lanes.

    Args:
        packing: its k are the packed depths of all taps.
        vec: lanes of a vector, which divide a tile.
        depth: elements of a row's tap.
        kernel_w: taps that lie side by side.
        steps: strides by the names of `LANE_STEPS`; None: it is an argument.
        matrix_at: text of a matrix's place in the source, by its number `matrix`.
        pairs: words are pairs of depths of 16 bits each, the last of a tap filled up with zero;
            else fp32.
        slice_taps: taps of a slice of a volume, whose source has two arguments more, see
            `VOLUME_STRIDES`; 0: there is no volume.
        mirrored: taps that lie side by side are packed from the last to the first.
    """
    words = ceil_div(depth, 2) if pairs else depth
    taps = packing.k // words
    count = taps * ceil_div(words, vec)
    squares = min(MOST_SQUARES, ceil_div(count, LEAST_ITEMS))

    @LazyText
    def text() -> str:
        return render(
            "pack_lanes",
            preamble="typedef ushort elem_t;" if pairs else dtype_preamble(packing.dtype),
            transpose=transpose_text(vec),
            rows=packing.extent,
            depth=depth,
            taps=taps,
            kernel_w=kernel_w,
            vec=vec,
            squares=squares,
            block=packing.tile,
            strides=steps,
            matrix_at=matrix_at,
            pairs=pairs,
            slice_taps=slice_taps,
            mirrored=mirrored,
        )

    blocks = packing.tiles * packing.tile // vec
    return Launch(
        text=text,
        kernel="pack_lanes",
        global_size=(ceil_div(count, squares), blocks, packing.batch),
        local_size=(1, 1, 1),
        args=(*packing.source, *buffer(packing.workspace)),
        of_weights=packing.source[0] == Buffer("w"),
    )


def transpose_text(vec: int) -> str:
    """Return the text of `void transpose(float{vec} rows[vec])`."""
    return render("transpose", vec=vec)
