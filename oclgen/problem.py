"""What is to be computed: products, convolutions and attention as frozen, hashable values.

Nothing here knows how a problem is solved; that is what the families in `oclgen.families` are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard, TypeVar

from oclgen.activations import ACTIVATIONS
from oclgen.attention_problem import FIXED_DTYPES, AttentionProblem
from oclgen.gemm_problem import Activation, GemmProblem, is_ragged, other_dtypes
from oclgen.packed_problem import PACKED_DTYPES, PackedProblem
from oclgen.problem_parts import (
    DTYPES,
    FREE_SIZES,
    INTEGERS,
    PRODUCT_DTYPES,
    STORED_BYTES,
    ProblemError,
    Shape,
    Volume,
    bytes_of,
    free_text,
    output_size,
    require_free,
    require_known,
    require_positive,
)

__all__ = [
    "DIRECTIONS",
    "DTYPES",
    "FREE_SIZES",
    "INTEGERS",
    "LAYOUTS",
    "PRODUCT_DTYPES",
    "STORED_BYTES",
    "Activation",
    "AttentionProblem",
    "ConvProblem",
    "Direction",
    "GemmProblem",
    "Known",
    "Memory",
    "PackedProblem",
    "Problem",
    "ProblemError",
    "Shape",
    "Volume",
    "divided_by",
    "has_volume",
    "in_planes",
    "is_ragged",
    "of_floats",
    "output_size",
    "stored_dtype",
    "with_sizes",
]

Direction = Literal["fwd", "bwd_data", "bwd_weights"]
Memory = Literal["nchw", "nhwc"]

DIRECTIONS: tuple[Direction, ...] = ("fwd", "bwd_data", "bwd_weights")
LAYOUTS: tuple[Memory, ...] = ("nchw", "nhwc")
"""How images lie in memory: planes of channels, or the channels of a pixel side by side (torch's
channels_last)."""


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """A 2-d convolution (cross-correlation, as PyTorch has it) in one of three directions.

    Shapes: x [batch, in_channels, height, width], w [out_channels, in_channels / groups,
    kernel_h, kernel_w], y [batch, out_channels, out_h, out_w]. `fwd` writes y from x, w and
    perhaps bias [out_channels] and residual, which lies as y does or there; `bwd_data` writes x
    (the gradient) from y and w; `bwd_weights` writes w from x and y. Bias, residual and activation
    belong to `fwd` alone: y = act(conv(x, w) + bias + residual). With `layout` "nhwc" x and y are
    [batch, height, width, channels], and a w that is written is [out_channels, kernel_h, kernel_w,
    in_channels / groups]; one that is read lies as above. The batch may be `free`, as sizes of a
    `GemmProblem` may.

    A convolution of three dimensions has a `volume`: the batch counts windows of the image that is
    read (y of `bwd_data`, else x), and its channels are taps by channels of a slice. That image
    lies as [images, depth, height, width, channels of a slice], and no window is stored.
    """

    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel_h: int
    kernel_w: int
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    groups: int = 1
    dtype: str = "fp32"
    direction: Direction = "fwd"
    bias: bool = False
    activation: Activation = "none"
    layout: Memory = "nchw"
    residual: bool = False
    free: frozenset[str] = frozenset()
    volume: Volume | None = None

    def __post_init__(self) -> None:
        """Raise `ProblemError` where the sizes contradict each other."""
        require_positive(
            self, "batch", "in_channels", "height", "width", "out_channels", "kernel_h",
            "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w", "groups",
        )  # fmt: skip
        require_known("dtype", self.dtype, DTYPES)
        require_known("direction", self.direction, DIRECTIONS)
        require_known("activation", self.activation, ACTIVATIONS)
        require_known("layout", self.layout, LAYOUTS)
        require_free(self)
        if self.pad_h < 0 or self.pad_w < 0:
            raise ProblemError(f"padding is {self.pad_h},{self.pad_w}; it must not be negative")
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ProblemError(
                f"in_channels={self.in_channels} and out_channels={self.out_channels} must both "
                f"be multiples of groups={self.groups}"
            )
        if self.out_h < 1 or self.out_w < 1:
            raise ProblemError(
                f"the output would be {self.out_h} x {self.out_w}: a kernel of "
                f"{self.kernel_h} x {self.kernel_w} (dilation {self.dilation_h},"
                f"{self.dilation_w}) does not fit {self.height} x {self.width} with padding "
                f"{self.pad_h},{self.pad_w}"
            )
        if self.direction != "fwd" and (self.bias or self.residual or self.activation != "none"):
            raise ProblemError("bias, residual and activation belong to fwd alone")
        if self.volume:
            self._require_windows(self.volume)

    def _require_windows(self, volume: Volume) -> None:
        if min(volume.size, volume.taps, volume.stride, volume.dilation) < 1 or volume.pad < 0:
            raise ProblemError(f"{volume} has a size below 1, or a pad below 0")
        if self.layout != "nhwc" or self.groups != 1 or self.free:
            raise ProblemError(
                f"images with a volume lie in nhwc, have one group and no free size; these lie in "
                f"{self.layout}, have {self.groups}, and {sorted(self.free)} are free"
            )
        channels = self.buffer_channels(self.read)
        if volume.windows < 1 or self.batch % volume.windows or channels % volume.taps:
            raise ProblemError(
                f"batch={self.batch} and {channels} channels must be multiples of the "
                f"{volume.windows} windows and of the taps of {volume}"
            )

    @property
    def read(self) -> str:
        """Role of the image that windows are read of."""
        return "y" if self.direction == "bwd_data" else "x"

    @property
    def of_slice(self) -> ConvProblem:
        """The problem of one tap along the depth of a volume; itself if there is no volume."""
        if self.volume is None:
            return self
        name = "in_channels" if self.read == "x" else "out_channels"
        return replace(self, volume=None, **{name: getattr(self, name) // self.volume.taps})

    def buffer_channels(self, role: str) -> int:
        """Return the channels of x or y as the problem counts them."""
        return self.in_channels if role == "x" else self.out_channels

    @property
    def op(self) -> str:
        """The operation's name in keys and records."""
        return "conv"

    @property
    def out_h(self) -> int:
        """Height of y."""
        return output_size(self.height, self.kernel_h, self.stride_h, self.pad_h, self.dilation_h)

    @property
    def out_w(self) -> int:
        """Width of y."""
        return output_size(self.width, self.kernel_w, self.stride_w, self.pad_w, self.dilation_w)

    @property
    def output(self) -> str:
        """Role of the buffer that is written."""
        return {"fwd": "y", "bwd_data": "x", "bwd_weights": "w"}[self.direction]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Roles of all buffers that are written."""
        return (self.output,)

    @property
    def buffers(self) -> dict[str, Shape]:
        """Dense shape of each buffer, by role."""
        depth, taps = (self.in_channels // self.groups,), (self.kernel_h, self.kernel_w)
        shapes: dict[str, Shape] = {
            "x": self._images(self.in_channels, self.height, self.width),
            "w": (self.out_channels, *(taps + depth if self.turns_weights else depth + taps)),
            "y": self._images(self.out_channels, self.out_h, self.out_w),
        }
        if self.bias:
            shapes["bias"] = (self.out_channels,)
        if self.residual:
            shapes["residual"] = shapes["y"]
        if self.volume:
            batch, height, width, channels = shapes[self.read]
            images, channels = batch // self.volume.windows, channels // self.volume.taps
            shapes[self.read] = (images, self.volume.size, height, width, channels)
        return shapes

    @property
    def turns_weights(self) -> bool:
        """Whether w lies in channels_last: a gradient of weights does, as the images do."""
        return self.layout == "nhwc" and self.direction == "bwd_weights"

    def _images(self, channels: int, height: int, width: int) -> Shape:
        if self.layout == "nhwc":
            return (self.batch, height, width, channels)
        return (self.batch, channels, height, width)

    @property
    def flops(self) -> int:
        """Multiplications and additions of the direct algorithm, whatever runs."""
        taps = self.kernel_h * self.kernel_w * self.in_channels // self.groups
        return 2 * self.batch * self.out_channels * self.out_h * self.out_w * taps

    @property
    def bytes(self) -> int:
        """Bytes moved if every input is read once and the output written once."""
        return bytes_of(self.buffers, self.dtype)

    def key(self) -> str:
        """Canonical text, `parse_key` reads it back: `conv:8,64,56,56,64,3,3:s1,1:p1,1:...`.

        The layout stands after that, unless it is "nchw", then a volume and a residual, if there
        are any, then `:any_batch` if the batch is free.
        """
        return (
            f"conv:{self.batch},{self.in_channels},{self.height},{self.width},"
            f"{self.out_channels},{self.kernel_h},{self.kernel_w}"
            f":s{self.stride_h},{self.stride_w}:p{self.pad_h},{self.pad_w}"
            f":d{self.dilation_h},{self.dilation_w}:g{self.groups}"
            f":{self.dtype}:{self.direction}:{'bias' if self.bias else '-'}:{self.activation}"
            f"{'' if self.layout == 'nchw' else f':{self.layout}'}"
            f"{':v' + ','.join(map(str, self.volume)) if self.volume else ''}"
            f"{':residual' if self.residual else ''}{free_text(self)}"
        )


Problem = GemmProblem | ConvProblem | AttentionProblem | PackedProblem
Known = TypeVar("Known", bound=Problem)


def in_planes(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether it is a convolution whose images lie as planes of channels, NCHW."""
    return isinstance(problem, ConvProblem) and problem.layout == "nchw"


def of_floats(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether it is a product of matrices of floats, which most families of products serve."""
    return isinstance(problem, GemmProblem) and problem.dtype in DTYPES


def has_volume(problem: Problem) -> bool:
    """Say whether it is a convolution that reads windows of three dimensions."""
    return isinstance(problem, ConvProblem) and problem.volume is not None


def with_sizes(problem: Known, sizes: Mapping[str, int]) -> Known:
    """Return the problem with other values of the sizes that are named."""
    values: dict[str, Any] = dict(sizes)
    return replace(problem, **values)


def divided_by(problem: Problem, size: str, tile: int) -> bool:
    """Say whether `tile` divides a size, at whatever value if the size is free.

    Args:
        problem: whose size it is.
        size: name of one of its sizes.
        tile: what may divide it.
    """
    return tile == 1 or (size not in problem.free and getattr(problem, size) % tile == 0)


def stored_dtype(problem: Problem, role: str) -> str:
    """Return the dtype of a buffer's items, a name of `STORED_BYTES`.

    All have the problem's dtype, with these exceptions: the sums of attention's rows, which are
    fp32, the random numbers of its dropout, packed weights, which are bytes, sums of integers, and
    the ends of ragged batch items.
    """
    others = _OTHER_DTYPES.get(problem.op) or other_dtypes(problem.dtype)
    return others.get(role, problem.dtype)


_OTHER_DTYPES = {"attention": FIXED_DTYPES, "packed": PACKED_DTYPES}
