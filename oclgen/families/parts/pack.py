"""Packing for kernels whose lanes are channels: the launch, its workspace and its arithmetic.

It knows matrices, not convolutions; the families say which matrices a convolution is made of.
"""

from __future__ import annotations

from dataclasses import dataclass

from oclgen.plan import Launch, LazyText, buffer, ceil_div
from oclgen.render import dtype_preamble, render

PACKED = "packed"
"""Role of the workspace."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Matrices [batch, rows, cols] to be packed to fp32 [batch, blocks, cols, block]."""

    batch: int
    rows: int
    cols: int
    vec: int
    block: int

    @property
    def blocks(self) -> int:
        """Blocks of rows per matrix."""
        return ceil_div(self.rows, self.block)

    @property
    def bytes(self) -> int:
        """Size of the workspace."""
        return 4 * self.batch * self.blocks * self.block * self.cols

    def launch(self, role: str, dtype: str) -> Launch:
        """Return the launch that packs the buffer of `role` into the workspace."""

        @LazyText
        def text() -> str:
            return render(
                "conv_pack",
                preamble=dtype_preamble(dtype),
                transpose=transpose_text(self.vec),
                rows=self.rows,
                cols=self.cols,
                vec=self.vec,
                block=self.block,
            )

        return Launch(
            text=text,
            kernel="conv_pack",
            global_size=(
                ceil_div(self.cols, self.vec), self.blocks * self.block // self.vec, self.batch,
            ),
            local_size=(1, 1, 1),
            args=(*buffer(role), *buffer(PACKED)),
            of_weights=role == "w",
        )  # fmt: skip


def transpose_text(vec: int) -> str:
    """Return the text of `void transpose(float{vec} rows[vec])`."""
    return render("transpose", vec=vec)
