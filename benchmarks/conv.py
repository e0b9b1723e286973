"""The convolutions of the benchmarks; measures them alone when it is run.

    python benchmarks/conv.py --only resnet_3x3,vgg_3x3,conv_1x1 --trials 25
    python benchmarks/conv.py --only resnet50,mobilenet_v2 --direction fwd

How they are measured and what the options mean: `all.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from task import Task, task_of

from oclgen.limits import Limits
from oclgen.problem import DIRECTIONS, ConvProblem, Direction

BATCH = {"cpu": 8, "gpu": 64, "other": 8}
FEWER = {"vgg_3x3": 4}
"""Groups whose images are so large that a batch has this many times fewer of them."""
FIRST = ("resnet_3x3", "vgg_3x3", "conv_1x1")
"""Groups that are measured before all others."""


def layer(
    channels: int, size: int, out: int, kernel: int, stride: int = 1, groups: int = 1
) -> ConvProblem:
    """Return a layer on square images with the padding that halves or keeps their size."""
    pad = kernel // 2
    return ConvProblem(
        1, channels, size, size, out, kernel, kernel, stride, stride, pad, pad, groups=groups
    )


def inverted(channels: int, size: int, expansion: int, out: int, stride: int) -> list[ConvProblem]:
    """Return a block of MobileNet v2: expansion, 3x3 on each channel, projection."""
    wide = channels * expansion
    expand = [layer(channels, size, wide, 1)] if expansion > 1 else []
    return [
        *expand,
        layer(wide, size, wide, 3, stride, groups=wide),
        layer(wide, size // stride, out, 1),
    ]


def bottleneck(channels: int, size: int, width: int, stride: int) -> list[ConvProblem]:
    """Return the first block of a stage of ResNet-50, and what later blocks have besides."""
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


def tasks(
    limits: Limits,
    batch: int = 0,
    directions: tuple[Direction, ...] = DIRECTIONS,
    dtypes: tuple[str, ...] = (),
) -> Iterator[Task]:
    """Yield all layers in all directions; without `batch`, with as many images as usual."""
    for group, layers in LAYERS.items():
        images = batch or BATCH[limits.kind] // FEWER.get(group, 1)
        for direction in directions:
            for dtype in dtypes or ("fp32",):
                name = f"{group} {direction}" + ("" if dtype == "fp32" else f" {dtype}")
                for one in layers:
                    if direction == "bwd_data" and one.in_channels == 3:
                        continue  # nobody asks for the gradient of an image
                    problem = replace(one, batch=images, direction=direction, dtype=dtype)
                    yield task_of(problem, name, 0 if group in FIRST else 2)


if __name__ == "__main__":
    from suite import main

    main("conv")
