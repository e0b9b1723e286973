"""What the sweep draws: convolutions and products of every class, as plain values.

A class is a direction, a dtype and a kind of shape. A case is drawn of each class in turn, in an
order that the seed draws, so that a run that ends early has seen as many classes as cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import prod
from random import Random
from typing import NamedTuple

from benchmarks.tasks.conv import IMAGES, any_channels
from benchmarks.tasks.draw import log_uniform
from benchmarks.tasks.task import Task
from oclgen.limits import Limits
from oclgen.problem import DIRECTIONS, DTYPES, output_size

KIND = "sweep"
"""Kind of the tasks."""
MOST_FLOPS = {"cpu": 1e9, "gpu": 1e11, "other": 1e9}
"""Operations of a case, at most."""
LEAST = 64
"""A case has at least 1 / LEAST of the most operations or of the most bytes: a smaller one would
time the host."""
MOST_TRIES = 2000
"""Draws of one class after which it has no further case."""
MOST_IMAGES = 256
TRANSPOSES = ((False, False), (False, True), (True, False), (True, True))
Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution of `x` [batch, channels, *sizes] with `w`, both as torch has them.

    `is_last` lays images and weights in channels_last. `direction` says which of the result and
    the gradients of x and w is computed.
    """

    kind: str
    direction: str
    dtype: str
    x: Sizes
    w: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int = 1
    is_transposed: bool = False
    is_last: bool = False

    @property
    def y(self) -> Sizes:
        """Shape of the result; a size below 1 where nothing fits."""
        steps = self.stride, self.padding, self.dilation
        if not self.is_transposed:
            return (self.x[0], self.w[0], *map(output_size, self.x[2:], self.w[2:], *steps))
        sizes = zip(self.x[2:], self.w[2:], *steps, strict=True)
        grown = ((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in sizes)
        return (self.x[0], self.w[1] * self.groups, *grown)

    @property
    def exists(self) -> bool:
        """Whether there is a result."""
        return min(self.y) > 0

    @property
    def flops(self) -> float:
        """Operations of the direct algorithm."""
        narrow = self.x if self.is_transposed else self.y
        return 2.0 * prod(narrow) * prod(self.w[1:])

    @property
    def bytes(self) -> float:
        """Bytes of images, weights and results."""
        return float(DTYPES[self.dtype] * sum(map(prod, (self.x, self.w, self.y))))

    @property
    def layout(self) -> str:
        """How images lie."""
        return "channels_last" if self.is_last else "planes"

    def key(self) -> str:
        """Return the case as text."""
        name = "conv_transpose" if self.is_transposed else "conv"
        steps = zip("spd", (self.stride, self.padding, self.dilation), strict=True)
        rest = " ".join(letter + _text(values) for letter, values in steps)
        return (
            f"{name} {_text(self.x)} * {_text(self.w)} {rest} g{self.groups} "
            f"{self.dtype} {self.direction} {self.layout}"
        )


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices [batch, m, k] and [batch, k, n], stored transposed where it says so.

    Rows of the stored matrices are `gap` items longer than what is multiplied; with `is_shared` all
    of the batch multiply one second matrix.
    """

    kind: str
    dtype: str
    m: int
    n: int
    k: int
    batch: int = 1
    trans: tuple[bool, bool] = (False, False)
    gap: int = 0
    is_shared: bool = False
    direction: str = field(default="product", init=False)
    layout: str = field(default="rows", init=False)

    @property
    def exists(self) -> bool:
        """Whether there is a result."""
        return True

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Bytes of the matrices."""
        second = self.k * self.n * (1 if self.is_shared else self.batch)
        rest = self.batch * self.m * (self.k + self.n)
        return float(DTYPES[self.dtype] * (second + rest))

    def key(self) -> str:
        """Return the case as text."""
        trans = "".join("nt"[each] for each in self.trans)
        shared = " shared" if self.is_shared else ""
        gap = f" gap {self.gap}" if self.gap else ""
        return f"{self.m}x{self.n}x{self.k} {trans} b{self.batch}{shared}{gap} {self.dtype}"


Case = Layer | Product


class Class(NamedTuple):
    """What a case is drawn of."""

    direction: str
    dtype: str
    kind: str


def classes(dtypes: Sequence[str]) -> list[Class]:
    """Return all classes; no training asks for the gradient of a network's input."""
    layers = product(DIRECTIONS, dtypes, LAYERS)
    return [
        *(Class(*each) for each in layers if each[::2] != ("bwd_data", "first")),
        *(Class("product", dtype, kind) for dtype in dtypes for kind in PRODUCTS),
    ]


def drawn(seed: int, count: int, limits: Limits, most_bytes: float) -> list[Case]:
    """Return different cases, of each class in turn.

    Args:
        seed: equal seeds give equal cases on devices of a kind, and more of them go on.
        count: how many.
        limits: of the device: its kind decides sizes, its matrix units whether there is tf32.
        most_bytes: of a case.

    Raises:
        ValueError: there are fewer.
    """
    random = Random(f"sweep {seed}")
    dtypes = [name for name in DTYPES if name != "tf32" or "mma" in limits.instructions]
    order = classes(dtypes)
    random.shuffle(order)
    found: dict[Case, None] = {}
    while len(found) < count:
        before = len(found)
        for each in order[: count - before]:
            if case := _one(each, MOST_FLOPS[limits.kind], most_bytes, random):
                found.setdefault(case)
        if len(found) == before:
            raise ValueError(f"there are {before} cases, not {count}: ask for fewer")
    return list(found)


def tasks(seed: int, count: int, limits: Limits, most_bytes: float) -> Iterator[Task]:
    """Yield the cases that `drawn` returns; a row counts in its class and in four wider groups.

    Args:
        seed: as in `drawn`.
        count: how many.
        limits: of the device.
        most_bytes: of a case.
    """
    for case in drawn(seed, count, limits, most_bytes):
        wider = (case.kind, case.direction, case.dtype, case.layout)
        groups = (f"{case.direction} {case.dtype} {case.kind}", *(f"all {name}" for name in wider))
        what = {"case": case}
        yield Task(KIND, case.key(), groups, 0, case.dtype, case.flops, case.bytes, what, seed)


def _one(each: Class, most_flops: float, most_bytes: float, random: Random) -> Case | None:
    """Return a case of a class that is neither too large nor too small."""
    for _ in range(MOST_TRIES):
        case: Case
        if each.kind in PRODUCTS:
            case = PRODUCTS[each.kind](each.dtype, random)
        else:
            case = LAYERS[each.kind](each.kind, each.direction, each.dtype, random)
        if case.exists:
            size = max(case.flops / most_flops, case.bytes / most_bytes)
            if 1 / LEAST <= size <= 1:
                return case
    return None


def _text(values: Sizes) -> str:
    return ",".join(map(str, values))


def _same(values: Sizes) -> Sizes:
    """Return padding that keeps sizes, of odd kernels at stride 1."""
    return tuple(each // 2 for each in values)


def _sizes(rank: int, random: Random) -> Sizes:
    """Return sizes of images: squares as of published networks, or odd ones."""
    if random.random() < 0.6:
        return (random.choice(IMAGES),) * rank
    return tuple(log_uniform(random, 5, 224) for _ in range(rank))


def _layer(
    kind: str,
    direction: str,
    dtype: str,
    random: Random,
    *,
    kernel: Sizes,
    channels: tuple[int, int] | None = None,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    is_transposed: bool = False,
) -> Layer:
    """Return a layer of any channels, images and batch, and of padding that most keep sizes by."""
    rank, (wide, out) = len(kernel), channels or (any_channels(random), any_channels(random))
    wide, out = (-(-each // groups) * groups for each in (wide, out))
    reach = tuple(dilation * (each - 1) for each in kernel)
    padding = _same(reach)
    if random.random() < 0.25:
        padding = tuple(random.randint(0, each // 2) for each in reach)
    w = (wide, out // groups) if is_transposed else (out, wide // groups)
    batch = log_uniform(random, 1, MOST_IMAGES)
    is_last = rank > 1 and random.random() < (0.4 if dtype in ("fp32", "tf32") else 0.7)
    return Layer(
        kind, direction, dtype, (batch, wide, *_sizes(rank, random)), (*w, *kernel),
        (stride,) * rank, padding, (dilation,) * rank, groups, is_transposed, is_last,
    )  # fmt: skip


Drawing = Callable[[str, str, str, Random], Layer]


def _square(kernels: Sequence[int], *given: object, rank: int = 2, **more: int) -> Layer:
    random = given[-1]
    assert isinstance(random, Random)
    return _layer(*given, kernel=(random.choice(kernels),) * rank, **more)  # type: ignore[arg-type]


def _wide(kind: str, direction: str, dtype: str, random: Random) -> Layer:
    kernel = (random.choice((2, 4, 5, 7, 9, 11)), random.choice((1, 3, 5, 7, 11)))
    if random.random() < 0.6:
        kernel = (kernel[0],) * 2
    return _layer(kind, direction, dtype, random, kernel=kernel)


def _first(kind: str, direction: str, dtype: str, random: Random) -> Layer:
    channels = random.choice((1, 3, 3, 4)), random.choice((32, 64, 96))
    stride, kernel = random.choice((1, 2, 2, 4)), (random.choice((3, 7, 11)),) * 2
    return _layer(kind, direction, dtype, random, kernel=kernel, channels=channels, stride=stride)


def _strided(kind: str, direction: str, dtype: str, random: Random) -> Layer:
    kernel, stride = (random.choice((1, 2, 3, 3, 5, 7)),) * 2, random.choice((2, 2, 2, 3, 4))
    return _layer(kind, direction, dtype, random, kernel=kernel, stride=stride)


def _dilated(kind: str, direction: str, dtype: str, random: Random) -> Layer:
    kernel, dilation = (random.choice((3, 3, 5)),) * 2, random.choice((2, 3, 4))
    return _layer(kind, direction, dtype, random, kernel=kernel, dilation=dilation)


def _grouped(kind: str, direction: str, dtype: str, random: Random) -> Layer:
    kernel, groups = (random.choice((1, 3, 3, 3, 5)),) * 2, random.choice((2, 4, 8, 32))
    stride = random.choice((1, 1, 1, 2))
    return _layer(kind, direction, dtype, random, kernel=kernel, groups=groups, stride=stride)


def _depthwise(
    kernels: Sequence[int], kind: str, direction: str, dtype: str, random: Random
) -> Layer:
    channels, times = any_channels(random), random.choice((1, 1, 1, 1, 1, 2, 4))
    return _layer(
        kind, direction, dtype, random, kernel=(random.choice(kernels),) * 2,
        channels=(channels, times * channels), groups=channels, stride=random.choice((1, 1, 2)),
    )  # fmt: skip


def _line(kind: str, direction: str, dtype: str, random: Random) -> Layer:
    groups = random.choice((1, 1, 1, 4))
    layer = _layer(
        kind, direction, dtype, random, kernel=(random.randint(1, 11),), groups=groups,
        stride=random.choice((1, 1, 2)), dilation=random.choice((1, 1, 2)),
    )  # fmt: skip
    length = log_uniform(random, 32, 8192)
    return Layer(
        kind, direction, dtype, (*layer.x[:2], length), layer.w, layer.stride, layer.padding,
        layer.dilation, groups,
    )  # fmt: skip


def _transposed(kind: str, direction: str, dtype: str, random: Random) -> Layer:
    stride = random.choice((1, 2, 2))
    kernel, groups = (random.choice((2, 3, 4, 5)),) * 2, random.choice((1, 1, 1, 4))
    return _layer(
        kind, direction, dtype, random, kernel=kernel, stride=stride, groups=groups,
        is_transposed=True,
    )  # fmt: skip


LAYERS: dict[str, Drawing] = {
    "1x1": partial(_square, (1,)),
    "3x3": partial(_square, (3,)),
    "wide": _wide,
    "first": _first,
    "strided": _strided,
    "dilated": _dilated,
    "grouped": _grouped,
    "depthwise 3x3": partial(_depthwise, (3,)),
    "depthwise wide": partial(_depthwise, (5, 7, 9, 11)),
    "1-d": _line,
    "3-d": partial(_square, (1, 3, 3, 5), rank=3),
    "transposed": _transposed,
}
"""How a layer of each kind is drawn."""


def _product(kind: str, dtype: str, random: Random, most_m: int, batched: bool) -> Product:
    m, n, k = (log_uniform(random, low, top) for low, top in ((1, most_m), (16, 8192), (16, 8192)))
    if random.random() < 0.5:
        n, k = (-(-size // 8) * 8 for size in (n, k))
    batch = log_uniform(random, 2, MOST_IMAGES) if batched else 1
    return Product(kind, dtype, m, n, k, batch, random.choice(TRANSPOSES))


def _cut(dtype: str, random: Random) -> Product:
    """Return a product of matrices that are cut out of wider ones, or share the second."""
    is_shared = random.random() < 0.5
    plain = _product("cut out", dtype, random, 8192, batched=is_shared)
    gap = 0 if is_shared else random.choice((1, 8, 64))
    return Product(
        plain.kind, dtype, plain.m, plain.n, plain.k, plain.batch, plain.trans, gap, is_shared
    )


PRODUCTS: dict[str, Callable[[str, Random], Product]] = {
    "large": lambda dtype, random: _product("large", dtype, random, 8192, batched=False),
    "thin": lambda dtype, random: _product("thin", dtype, random, 16, batched=False),
    "batched": lambda dtype, random: _product("batched", dtype, random, 2048, batched=True),
    "cut out": _cut,
}
"""How a product of each kind is drawn."""
