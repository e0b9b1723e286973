"""Operands repacked before a product: where they lie, their workspace, the launch that fills it.

It knows matrices and the weights of convolutions; how a tile looks inside is its kernel's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oclgen.families.parts.strided_weights import strided_weights
from oclgen.plan import Arg, Launch, LazyText, Scalar, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem
from oclgen.render import dtype_preamble, render

PACKED = "packed"
"""Role of the workspace of packed weights."""


def packed_elements(extent: int, k: int, tile: int, tile_k: int = 1) -> int:
    """Return the elements of a matrix [extent, k] in whole tiles of `tile` x `tile_k`.

    Args:
        extent: rows.
        k: steps of the reduction.
        tile: rows of a tile.
        tile_k: steps of k of a tile.
    """
    return round_up(extent, tile) * round_up(k, tile_k)


@dataclass(frozen=True, slots=True)
class Packing:
    """Matrices [batch, extent, k] as [batch][tiles of extent][k][tile], zeros past the edges.

    Rows of a tile are what one step of the reduction reads, so every load of the kernel behind is
    contiguous, however the source lies, and needs no guard (Goto and van de Geijn 2008).

    Attributes:
        workspace: role of the workspace.
        source: the arguments of what is packed.
        dtype: its storage.
        along_k: its neighbours are steps of k.
        batch, extent, k: sizes of the source.
        tile: rows of a tile; the last tile is filled up.
        tile_k: k is filled up to a multiple of it.
        elem_bytes: bytes of a packed element.
        batch_stride: elements between packed matrices, as the kernel behind is told.
    """

    workspace: str
    source: tuple[Arg, ...]
    dtype: str
    along_k: bool
    batch: int
    extent: int
    k: int
    tile: int
    tile_k: int = 1
    elem_bytes: int = 4
    batch_stride: int = 0

    @property
    def tiles(self) -> int:
        """Tiles along the extent of a matrix."""
        return ceil_div(self.extent, self.tile)

    @property
    def bytes(self) -> int:
        """Bytes of the workspace."""
        elements = packed_elements(self.extent, self.k, self.tile, self.tile_k)
        return self.elem_bytes * self.batch * elements

    def argument(self) -> tuple[Arg, ...]:
        """Return the packed matrix; its row stride is the distance between rows of tiles."""
        row = self.tile * round_up(self.k, self.tile_k)
        return (*buffer(self.workspace), Scalar(row), Scalar(self.batch_stride, "long"))

    def launch(self, text: LazyText, rows: int, steps: int, work_items: int = 1) -> Launch:
        """Return the launch that fills the workspace.

        The kernel has the workspace's name, and is told sizes and strides.

        Args:
            text: the OpenCL C.
            rows: rows that a work-group packs.
            steps: steps of k that a work-group packs.
            work_items: of a work-group.
        """
        return self.launch_of(
            self.workspace, text, rows, steps, work_items,
            args=(*self.argument(), Scalar(self.extent), Scalar(self.k)),
        )  # fmt: skip

    def launch_of(
        self,
        kernel: str,
        text: LazyText,
        rows: int,
        steps: int,
        work_items: int = 1,
        args: tuple[Arg, ...] = (),
        of_weights: bool = False,
    ) -> Launch:
        """Return the same of a kernel of any name and arguments.

        Args:
            kernel: its name.
            text: the OpenCL C.
            rows: rows that a work-group packs.
            steps: steps of k that a work-group packs.
            work_items: of a work-group.
            args: the kernel's arguments behind the source.
            of_weights: what is packed are weights, which dispatch may keep packed.
        """
        return Launch(
            text=text,
            kernel=kernel,
            global_size=(
                work_items * ceil_div(round_up(self.k, self.tile_k), steps),
                ceil_div(self.tiles * self.tile, rows),
                self.batch,
            ),
            local_size=(work_items, 1, 1),
            args=(*self.source, *args),
            of_weights=of_weights,
        )


def sizes_of(packed: Iterable[Packing]) -> tuple[tuple[str, int], ...]:
    """Return role and bytes of workspaces."""
    return tuple((packing.workspace, packing.bytes) for packing in packed)


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


def pack_lanes(packing: Packing, vec: int) -> Launch:
    """Return the launch that packs for vectors of `vec` lanes, which divide a tile."""

    @LazyText
    def text() -> str:
        return render(
            "conv_pack",
            preamble=dtype_preamble(packing.dtype),
            transpose=transpose_text(vec),
            rows=packing.extent,
            cols=packing.k,
            vec=vec,
            block=packing.tile,
        )

    of_weights = packing.source == buffer("w")
    return packing.launch_of(
        "conv_pack", text, rows=vec, steps=vec, args=buffer(PACKED), of_weights=of_weights
    )


def pack_weights(
    problem: ConvProblem, packing: Packing, channels: int, depth: int, vec: int
) -> Launch:
    """Return the launch that packs weights of any strides, the depths of a tap side by side.

    A caller may replace the strides, as those of `strided_weights`.

    Args:
        problem: forward or backward-data.
        packing: of a matrix [channels, depth * taps] for each group.
        channels: of a group's result.
        depth: channels of a group that are summed over.
        vec: lanes of a vector, which divide a tile.
    """
    taps = problem.kernel_h * problem.kernel_w

    @LazyText
    def text() -> str:
        return render(
            "conv_pack_strided",
            preamble=dtype_preamble(packing.dtype),
            transpose=transpose_text(vec),
            channels=channels,
            depth=depth,
            taps=taps,
            kernel_w=problem.kernel_w,
            vec=vec,
            block=packing.tile,
            grouped="channel" if problem.direction == "fwd" else "depth",
        )

    blocks = packing.tiles * packing.tile // vec
    return Launch(
        text=text,
        kernel="conv_pack",
        global_size=(taps * ceil_div(depth, vec), blocks, packing.batch),
        local_size=(1, 1, 1),
        args=(*strided_weights(problem), *buffer(PACKED)),
        of_weights=True,
    )


def transpose_text(vec: int) -> str:
    """Return the text of `void transpose(float{vec} rows[vec])`."""
    return render("transpose", vec=vec)
