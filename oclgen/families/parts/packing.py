"""Operands repacked before a product: where they lie, their workspace, the launch that fills it.

It knows no problem; how a tile looks inside is its kernel's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from oclgen.families.parts.expressions import defines
from oclgen.plan import Arg, Launch, LazyText, Scalar, buffer, ceil_div, round_up
from oclgen.render import STORED, dtype_preamble, render

PACKED = "packed"
"""Role of the workspace of packed weights."""
CHUNK_BYTES = 16
"""Bytes that a work-item of a GPU copies at a time, and the unit that a swizzle of tiles moves."""
LINE_BYTES, PACK_ROWS = 128, 64
"""What a work-group packs: rows of a tile, and bytes of each."""
TILES_ITEMS, TAPS_ITEMS = 256, 64
"""Work-items per group of the kernels that pack on GPUs."""
TAP_SIZES = (
    "PACKED_FIRST", "TAPS_H", "TAPS_W", "KERNEL_FIRST_H", "KERNEL_FIRST_W", "KERNEL_STEP_H",
    "KERNEL_STEP_W",
)  # fmt: skip
"""Sizes that the text of `pack_taps` has."""
ROW_SIZES: dict[str, Literal["int", "long"]] = {
    "PRODUCTS": "int", "CHANNELS": "int", "ROWS": "int", "DEPTH": "int", "TAP_DEPTH": "int",
    "K_PADDED": "int", "PACKED_STEP": "long",
}  # fmt: skip
"""Sizes that may be its arguments, and their types."""


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

    One step of the reduction reads a row of a tile. So every load of the product's kernel is
    contiguous and needs no guard, however the source lies (Goto and van de Geijn 2008).

    Attributes:
        workspace: role of the workspace.
        source: the arguments of what is packed.
        dtype: its storage.
        along_k: its neighbours are steps of k.
        batch, extent, k: sizes of the source.
        tile: rows of a tile; the last tile is filled up.
        tile_k: k is filled up to a multiple of it.
        elem_bytes: bytes of a packed element.
        batch_stride: elements between packed matrices, an argument of the product's kernel.
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
    def row(self) -> int:
        """Elements of a dense row of the source."""
        return self.k if self.along_k else self.extent

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
            args: the kernel's arguments after the source.
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


def pack_tiles(
    tiles: Packing,
    within: str,
    rounded: bool = False,
    bounded: bool = False,
    tile_along_k: bool = True,
    shifted: bool = False,
) -> Launch:
    """Return the launch that packs matrices on a GPU as the tiles of a product's local memory.

    Args:
        tiles: the matrices and their workspace.
        within: text of the chunk of a tile that has its `row` and the step `p`.
        rounded: words are rounded to tf32.
        bounded: the last tile ends with the last row, and is not filled up.
        tile_along_k: neighbours of a tile are steps of k, else rows.
        shifted: chunks of rows that are no multiple of 16 bytes are read by two around them, not by
            elements.
    """
    chunk = CHUNK_BYTES // tiles.elem_bytes
    line = LINE_BYTES // tiles.elem_bytes
    # what is turned comes in lines of 64 neighbours, and leaves in lines of 128 bytes
    rows, steps = (PACK_ROWS, line) if tile_along_k else (line, PACK_ROWS)
    whole = f"(extent + {tiles.tile - 1}) / {tiles.tile} * {tiles.tile}"

    @LazyText
    def text() -> str:
        return render(
            "pack_tiles",
            name=tiles.workspace,
            word="uint" if tiles.elem_bytes == 4 else "ushort",
            chunk=chunk,
            rows=rows,
            steps=steps,
            along_k=tiles.along_k,
            tile_along_k=tile_along_k,
            tile=tiles.tile,
            tile_k=tiles.tile_k,
            within=within,
            bound="extent" if bounded else whole if tiles.tile % rows else "",
            tf32=rounded,
            shifted=shifted and tiles.row * tiles.elem_bytes % CHUNK_BYTES != 0,
        )

    return tiles.launch(text, rows=rows, steps=steps, work_items=TILES_ITEMS)


@dataclass(frozen=True, slots=True)
class Taps:
    """Rows of k gathered on a GPU from channels, depths and taps that lie as strides say.

    Attributes:
        dtype: storage of the source; `widened` says that what is packed is fp32.
        source: the arguments of the source: buffer, offset, and strides by channel, depth, and row
            and column of taps.
        packed: the arguments of what is packed.
        phases: sizes of each phase, by the names of `TAP_SIZES` and `ROW_SIZES`.
        place: text of a packed element's place by its `row` and `k`.
        group_step: text of the elements between the sources of two groups.
        chunk: depths that a work-item takes.
        channels_first: k counts taps within channels, else channels within taps.
        taps_first: neighbouring work-items take neighbouring taps, else neighbouring rows.
        together: groups side by side in a product, with zeros between them.
        channels, depth: of one of these groups.
        slice: depths of a slice of a volume, whose source has two arguments more; 0: none.
        shares_text: sizes are arguments where there is one phase, so that layers share a text.
    """

    dtype: str
    source: tuple[Arg, ...]
    packed: tuple[Arg, ...]
    phases: Sequence[dict[str, int]]
    place: str
    group_step: str
    chunk: int
    widened: bool = False
    channels_first: bool = False
    taps_first: bool = False
    together: int = 1
    channels: int = 0
    depth: int = 0
    slice: int = 0
    shares_text: bool = False

    @property
    def taps(self) -> int:
        """Taps of the phase that has most."""
        return max(one["TAPS_H"] * one["TAPS_W"] for one in self.phases)

    @property
    def _given(self) -> dict[str, Literal["int", "long"]]:
        return ROW_SIZES if self.shares_text and len(self.phases) == 1 else {}

    def _depths(self, one: dict[str, int]) -> int:
        """Return the depths of a tap that work-items count, with what fills the last tile."""
        taps, k = one["TAPS_H"] * one["TAPS_W"], one["K_PADDED"]
        return ceil_div(k, taps) if self.channels_first else k - (taps - 1) * one["TAP_DEPTH"]

    def _text(self) -> str:
        given, elem = self._given, STORED[self.dtype]
        word = "float" if self.widened else "uint" if elem == "float" else "ushort"
        read = "LOAD1(p)" if self.widened else "*(p)"
        types = dtype_preamble(self.dtype) if self.widened else f"typedef {word} elem_t;"
        written = (*TAP_SIZES, *(name for name in ROW_SIZES if name not in given))
        return render(
            "pack_taps",
            types=f"{types}\n#define READ(p) {read}",
            word=word,
            chunk=self.chunk,
            sizes=defines([{name: one[name] for name in written} for one in self.phases]),
            given=given,
            taps=self.taps,
            taps_first=self.taps_first,
            channels_first=self.channels_first,
            place=self.place,
            together=self.together,
            channels=self.channels,
            depth=self.depth,
            slice=self.slice,
            group_step=self.group_step,
            at_once=not self.widened,
            tf32=self.dtype == "tf32" and not self.widened,
            local_size=TAPS_ITEMS,
        )

    def launch(self, of_weights: bool) -> Launch:
        """Return the launch; `of_weights`: the source are weights, which dispatch may keep so."""
        one, taps = self.phases[0], self.taps
        across, down = (taps, 1) if self.taps_first else (1, taps)
        return Launch(
            text=LazyText(self._text),
            kernel="pack_taps",
            global_size=(
                round_up(across * one["ROWS"], TAPS_ITEMS),
                ceil_div(max(map(self._depths, self.phases)), self.chunk),
                down * len(self.phases) * one["PRODUCTS"],
            ),
            local_size=(TAPS_ITEMS, 1, 1),
            args=(
                *self.source,
                *self.packed,
                *(Scalar(one[name], kind) for name, kind in self._given.items()),
            ),
            of_weights=of_weights,
        )
