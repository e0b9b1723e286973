"""How shapes and options of operators are drawn: any rank, any sizes, odd ones and extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from random import Random
from typing import Any

from benchmarks.tasks.conv import IMAGES, any_channels
from benchmarks.tasks.draw import log_uniform

Sizes = tuple[int, ...]
Drawn = tuple[Sizes, dict[str, Any]]
"""Shape of the operator's first tensor, and its options."""
Drawing = Callable[[Random, int], Drawn]
"""Draws for a number of elements, which the shape is near to."""
WIDTHS = (48, 64, 80, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 2048, 4096)
"""Features of published networks' layers."""


def sizes(random: Random, elements: int, rank: int) -> Sizes:
    """Return sizes whose product is near `elements`, of any proportions; half are multiples of 8.

    Args:
        random: is drawn from.
        elements: of the tensor.
        rank: dimensions.
    """
    found, left = [], max(elements, 2)
    for _ in range(rank - 1):
        size = log_uniform(random, 1, left)
        size = -(-size // 8) * 8 if size > 8 and random.random() < 0.5 else size
        found.append(size)
        left = max(1, left // size)
    found.append(left)
    random.shuffle(found)
    return tuple(found)


def one_of(ops: Iterable[str], draw: Drawing) -> Drawing:
    """Return a drawing that chooses one of `ops`, too, as the option `op`."""
    names = tuple(ops)

    def drawn(random: Random, elements: int) -> Drawn:
        shape, options = draw(random, elements)
        return shape, {"op": random.choice(names), **options}

    return drawn


def plain(random: Random, elements: int) -> Drawn:
    """Draw a tensor of one to five dimensions."""
    return sizes(random, elements, random.randint(1, 5)), {}


def along(random: Random, elements: int) -> Drawn:
    """Draw a tensor and one of its dimensions."""
    shape = sizes(random, elements, random.randint(1, 4))
    return shape, {"dim": random.randrange(len(shape))}


def over(random: Random, elements: int) -> Drawn:
    """Draw a tensor and some of its dimensions, at times all."""
    shape = sizes(random, elements, random.randint(1, 5))
    count = random.randint(1, len(shape))
    return shape, {"dims": tuple(sorted(random.sample(range(len(shape)), count)))}


def rows(random: Random, elements: int) -> Drawn:
    """Draw rows of features: [rows, features] or [texts, tokens, features]."""
    width = random.choice(WIDTHS) if random.random() < 0.7 else log_uniform(random, 3, 8192)
    count = max(1, elements // width)
    return ((count, width) if random.random() < 0.5 else (-(-count // 64), 64, width)), {}


def images(random: Random, elements: int, rank: int = 2) -> Drawn:
    """Draw images [batch, channels, *sizes] as networks have them.

    Args:
        random: is drawn from.
        elements: of the images.
        rank: dimensions of an image, without its channels.
    """
    most = max(2, int(elements ** (1 / rank)))
    if random.random() < 0.6:
        each = (min(most, random.choice(IMAGES)),) * rank
    else:
        each = tuple(log_uniform(random, min(5, most), min(224, most)) for _ in range(rank))
    channels = min(any_channels(random), max(1, elements // prod(each)))
    return (max(1, elements // (channels * prod(each))), channels, *each), {}


def windows(random: Random, elements: int) -> Drawn:
    """Draw images of one to three dimensions, and a pooling of them."""
    shape, _ = images(random, elements, random.choice((1, 2, 2, 2, 3)))
    kernel = min(random.choice((2, 2, 3, 3, 5, 7)), *shape[2:])
    stride = random.choice((kernel, 2, 1))
    return shape, {"kernel": kernel, "stride": stride, "padding": random.randint(0, kernel // 2)}


def planes(random: Random, elements: int) -> Drawn:
    """Draw images, and the sizes of images that they become."""
    shape, _ = images(random, elements)
    if random.random() < 0.5:
        factor = random.choice((0.5, 2.0, 1.5))
        return shape, {"to": tuple(max(1, int(each * factor)) for each in shape[2:])}
    return shape, {"to": tuple(log_uniform(random, 1, 2 * each) for each in shape[2:])}


def table(random: Random, elements: int) -> Drawn:
    """Draw a table [places, width] and how many of its rows are named."""
    width = random.choice((1, *WIDTHS)) if random.random() < 0.7 else log_uniform(random, 1, 4096)
    places = log_uniform(random, 2, max(2, elements // width))
    return (places, width), {"count": max(1, elements // width)}


def classes(random: Random, elements: int) -> Drawn:
    """Draw scores [rows, classes]."""
    count = log_uniform(random, 2, min(65_536, elements))
    return (max(1, elements // count), count), {}


def sequences(random: Random, elements: int) -> Drawn:
    """Draw steps of recurrent layers: [steps, batch, features], and the width within."""
    steps, batch = log_uniform(random, 2, 128), log_uniform(random, 1, 64)
    width = log_uniform(random, 16, 512)
    return (steps, batch, min(width, max(8, elements // (steps * batch)))), {"hidden": width}


def square(random: Random, elements: int) -> Drawn:
    """Draw a batch of square matrices."""
    size = log_uniform(random, 2, max(2, min(512, int(elements**0.5) // 4)))
    return (log_uniform(random, 1, max(1, min(4096, elements // size**2))), size, size), {}
