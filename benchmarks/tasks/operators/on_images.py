"""Kinds of operators on images: pooling, other sizes, padding, and norms over pixels."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.tasks.operators.case import Kind, Made
from benchmarks.tasks.operators.drawing import Drawn, Sizes, images, one_of, planes, windows

MODES = ("nearest", "bilinear", "bicubic", "area")
PADS = ("constant", "reflect", "replicate", "circular")
PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x, 2),
    "unfold": lambda x: functional.unfold(x, 3, padding=1),
    "channel_shuffle": lambda x: functional.channel_shuffle(x, 2),
    "halves joined": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
}


def _max_pool(x: Tensor, kernel: int, stride: int, padding: int) -> Made:
    pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[x.dim() - 3]
    return Made(lambda: pool(x, kernel, stride, padding))


def _avg_pool(x: Tensor, kernel: int, stride: int, padding: int) -> Made:
    pool: Any = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[x.dim() - 3]
    return Made(lambda: pool(x, kernel, stride, padding))


def _interpolate(x: Tensor, op: str, to: Sizes) -> Made:
    return Made(lambda: functional.interpolate(x, to, mode=op))


def _pad(x: Tensor, op: str, widths: Sizes) -> Made:
    return Made(lambda: functional.pad(x, widths, op))


def _pads(random: Random, elements: int) -> Drawn:
    shape, _ = images(random, elements)
    widths = tuple(random.randint(0, min(4, shape[3 - at // 2] - 1)) for at in range(4))
    return shape, {"widths": widths}


def _grid_sample(x: Tensor, to: Sizes) -> Made:
    grid = torch.rand(x.shape[0], *to, 2, device=x.device).to(x.dtype) * 2 - 1
    return Made(lambda: functional.grid_sample(x, grid, align_corners=False))


def _even(random: Random, elements: int) -> Drawn:
    """Draw images of even sizes and channels."""
    (batch, *sizes), _ = images(random, elements)
    return (batch, *(-(-each // 2) * 2 for each in sizes)), {}


def _group_norm(x: Tensor) -> Made:
    groups = next(each for each in (32, 16, 8, 4, 2, 1) if x.shape[1] % each == 0)
    norm = torch.nn.GroupNorm(groups, x.shape[1], device=x.device, dtype=x.dtype)
    return Made(lambda: norm(x), tuple(norm.parameters()))


def _batch_norm(x: Tensor) -> Made:
    norm = torch.nn.BatchNorm2d(x.shape[1], device=x.device, dtype=x.dtype)
    return Made(lambda: norm(x), tuple(norm.parameters()))


KINDS = {
    "max_pool": Kind("pooling", windows, _max_pool, True),
    "avg_pool": Kind("pooling", windows, _avg_pool, True),
    "adaptive_avg_pool": Kind(
        "pooling", planes, lambda x, to: Made(lambda: functional.adaptive_avg_pool2d(x, to)), True
    ),
    "interpolate": Kind("images", one_of(MODES, planes), _interpolate, True, part=0.25),
    "pad": Kind("images", one_of(PADS, _pads), _pad, True),
    "grid_sample": Kind("images", planes, _grid_sample, True, part=0.25),
    "parts": Kind(
        "images", one_of(PARTS, _even), lambda x, op: Made(lambda: PARTS[op](x)), True, part=0.1
    ),
    "group_norm": Kind("norms", images, _group_norm, True),
    "batch_norm": Kind("norms", images, _batch_norm, True),
    "instance_norm": Kind(
        "norms", images, lambda x: Made(lambda: functional.instance_norm(x)), True
    ),
}
