"""The convolutions of the benchmarks, chosen and drawn.

python -m benchmarks conv --only resnet_3x3,vgg_3x3,conv_1x1 --trials 25
python -m benchmarks conv --only resnet50,mobilenet_v2 --direction fwd
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from random import Random

from benchmarks.tasks.draw import Draw, distinct, log_uniform
from benchmarks.tasks.task import Task, task_of
from oclgen.limits import Limits
from oclgen.problem import DIRECTIONS, ConvProblem, Direction

BATCH = {"cpu": 8, "gpu": 64, "other": 8}
FEWER = {"vgg_3x3": 4}
"""Groups whose images are so large that a batch has this many times fewer of them."""
FIRST = ("resnet_3x3", "vgg_3x3", "conv_1x1")
"""Groups that are measured before all others."""
DRAWN = 12
"""Layers that a seed draws; each is measured in all directions."""
CHANNELS = (
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    144,
    160,
    192,
    256,
    320,
    384,
    512,
    576,
    768,
    960,
    1024,
    2048,
)
IMAGES: tuple[int, ...] = (7, 8, 13, 14, 17, 20, 27, 28, 32, 35, 40, 55, 56, 64, 80, 112, 128, 224)
"""Heights, which are widths as well, that layers of published networks have."""
KERNELS = {(1, 1): 35, (3, 3): 42, (5, 5): 8, (7, 7): 6, (1, 7): 3, (7, 1): 3, (1, 3): 2, (2, 2): 1}
"""Kernels, and how often each of them is drawn among 100 layers."""
MOST_FLOPS = {"cpu": 2e10, "gpu": 1e12, "other": 2e10}
"""Operations of a drawn layer, at most: some tenths of a second on slow devices of the kind."""
LEAST_INTENSITY = 100
"""A drawn layer moves at most `MOST_FLOPS` over this in bytes."""
MOST_ACROSS = 24_576
"""Channels times height of a drawn layer, at most: networks widen as their images shrink."""


def layer(
    channels: int, size: int, out: int, kernel: int, stride: int = 1, groups: int = 1
) -> ConvProblem:
    """Return a layer on square images with the padding that halves or keeps their size.

    Args:
        channels: of the image.
        size: height and width of the image.
        out: channels of the result.
        kernel: height and width, an odd number for padding on both sides.
        stride: along both.
        groups: of channels.
    """
    pad = kernel // 2
    return ConvProblem(
        1, channels, size, size, out, kernel, kernel, stride, stride, pad, pad, groups=groups
    )


def inverted(channels: int, size: int, expansion: int, out: int, stride: int) -> list[ConvProblem]:
    """Return a block of MobileNet v2: expansion, 3x3 on each channel, projection.

    Args:
        channels: of the image.
        size: height and width of the image.
        expansion: channels in between, as a multiple; 1: there is no expanding layer.
        out: channels of the result.
        stride: of the 3x3 layer.
    """
    wide = channels * expansion
    expand = [layer(channels, size, wide, 1)] if expansion > 1 else []
    return [
        *expand,
        layer(wide, size, wide, 3, stride, groups=wide),
        layer(wide, size // stride, out, 1),
    ]


def bottleneck(channels: int, size: int, width: int, stride: int) -> list[ConvProblem]:
    """Return the first block of a stage of ResNet-50, and what later blocks have besides.

    Args:
        channels: of the image.
        size: height and width of the image.
        width: channels of the 3x3 layer; the result has four times as many.
        stride: of the 3x3 layer.
    """
    out, small = 4 * width, size // stride
    return [
        layer(channels, size, width, 1),
        layer(width, size, width, 3, stride),
        layer(width, small, out, 1),
        layer(channels, size, out, 1, stride),
        layer(out, small, width, 1),
        layer(width, small, width, 3),
    ]


LAYERS: dict[str, list[ConvProblem]] = {
    "resnet_3x3": [layer(c, s, c, 3) for c, s in ((64, 56), (128, 28), (256, 14), (512, 7))],
    "vgg_3x3": [layer(c, s, c, 3) for c, s in ((64, 224), (128, 112), (256, 56), (512, 28))],
    "conv_1x1": [layer(256, 56, 64, 1), layer(1024, 14, 256, 1), layer(512, 7, 2048, 1)],
    "odd": [layer(128, 28, 256, 3, 2), layer(64, 27, 192, 5)],
    "resnet50": [
        layer(3, 224, 64, 7, 2),
        *bottleneck(64, 56, 64, 1),
        *bottleneck(256, 56, 128, 2),
        *bottleneck(512, 28, 256, 2),
        *bottleneck(1024, 14, 512, 2),
    ],
    "vgg16": [
        layer(3, 224, 64, 3),
        layer(64, 224, 64, 3),
        layer(64, 112, 128, 3),
        layer(128, 112, 128, 3),
        layer(128, 56, 256, 3),
        layer(256, 56, 256, 3),
        layer(256, 28, 512, 3),
        layer(512, 28, 512, 3),
        layer(512, 14, 512, 3),
    ],
    "alexnet": [
        replace(layer(3, 224, 64, 11, 4), pad_h=2, pad_w=2),
        layer(64, 27, 192, 5),
        layer(192, 13, 384, 3),
        layer(384, 13, 256, 3),
        layer(256, 13, 256, 3),
    ],
    "mobilenet_v2": [
        layer(3, 224, 32, 3, 2),
        *inverted(32, 112, 1, 16, 1),
        *inverted(16, 112, 6, 24, 2),
        *inverted(24, 56, 6, 24, 1),
        *inverted(24, 56, 6, 32, 2),
        *inverted(32, 28, 6, 32, 1),
        *inverted(32, 28, 6, 64, 2),
        *inverted(64, 14, 6, 64, 1),
        *inverted(64, 14, 6, 96, 1),
        *inverted(96, 14, 6, 96, 1),
        *inverted(96, 14, 6, 160, 2),
        *inverted(160, 7, 6, 160, 1),
        *inverted(160, 7, 6, 320, 1),
        layer(320, 7, 1280, 1),
    ],
}
"""Layers at batch 1. Of a network all that differ at 224 x 224; some stand here twice."""


def drawn(seed: int, count: int, kind: str) -> list[ConvProblem]:
    """Return different forward layers at random, for a kind of device.

    Channels, image sizes, kernels, strides and groups are combined as published networks combine
    them, but independently of each other; one number of channels in four is any at all.

    Args:
        seed: equal seeds give equal layers.
        count: layers.
        kind: "cpu" or "gpu": how many images and operations a layer has.
    """
    return distinct("conv", seed, count, partial(any_layer, BATCH[kind], MOST_FLOPS[kind]))


def any_layer(most_images: int, most_flops: float, random: Random) -> ConvProblem | None:
    """Return a forward layer, None where what was drawn is too large.

    Args:
        most_images: of a batch.
        most_flops: of the layer.
        random: what draws.
    """
    channels, out = any_channels(random), any_channels(random)
    shape = random.choices(("dense", "depthwise", "grouped", "first"), (70, 18, 6, 6))[0]
    groups, images = 1, IMAGES
    if shape == "depthwise":
        out = groups = channels
    elif shape == "grouped":
        groups = random.choice((2, 4, 8, 32))
        channels, out = (-(-each // groups) * groups for each in (channels, out))
    elif shape == "first":
        channels, images = 3, IMAGES[-3:]
    height, width = random.choices(list(KERNELS), list(KERNELS.values()))[0]
    dilation = 2 if height * width > 1 and random.random() < 0.08 else 1
    stride = 2 if random.random() < 0.25 else 1
    size = random.choice(images)
    found = ConvProblem(
        log_uniform(random, 1, most_images), channels, size, size, out, height, width,
        stride, stride, height // 2 * dilation, width // 2 * dilation, dilation, dilation, groups,
    )  # fmt: skip
    is_small = max(channels, out) * size <= MOST_ACROSS
    is_small = (
        is_small and found.flops <= most_flops and found.bytes <= most_flops / LEAST_INTENSITY
    )
    return found if is_small else None


def any_channels(random: Random) -> int:
    """Return channels as networks have them, one time in four any number."""
    return log_uniform(random, 4, 1024) if random.random() < 0.25 else random.choice(CHANNELS)


def tasks(
    limits: Limits,
    draw: Draw,
    batch: int = 0,
    directions: tuple[Direction, ...] = DIRECTIONS,
    dtypes: tuple[str, ...] = (),
) -> Iterator[Task]:
    """Yield all layers in all directions; without `batch`, with as many images as usual.

    Args:
        limits: of the device.
        draw: how many layers are drawn at random, and their seed.
        batch: images; 0: as many as usual for the kind of device and the group.
        directions: which of the three.
        dtypes: of the images; fp32 if empty.
    """
    asked = list(product(directions, dtypes or ("fp32",)))
    for group, layers in LAYERS.items():
        images = batch or BATCH[limits.kind] // FEWER.get(group, 1)
        rank = 0 if group in FIRST else 2
        for direction, dtype in asked:
            for one in _with_gradient(layers, direction):
                problem = replace(one, batch=images, direction=direction, dtype=dtype)
                yield task_of(problem, _group(group, direction, dtype), rank)
    layers = drawn(draw.seed, draw.of(DRAWN), limits.kind)
    for direction, dtype in asked:
        group = _group("drawn convolutions", direction, dtype)
        for one in _with_gradient(layers, direction):
            problem = replace(one, batch=batch or one.batch, direction=direction, dtype=dtype)
            yield task_of(problem, group, 0, draw.seed)


def _with_gradient(layers: Sequence[ConvProblem], direction: Direction) -> list[ConvProblem]:
    """Return the layers that a training asks for: it wants no gradient of an image."""
    return [one for one in layers if direction != "bwd_data" or one.in_channels != 3]


def _group(name: str, direction: Direction, dtype: str) -> str:
    return f"{name} {direction}" + ("" if dtype == "fp32" else f" {dtype}")
