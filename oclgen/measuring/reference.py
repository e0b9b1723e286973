"""The float64 reference every variant is verified against; numpy only, no device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen.activations import ACTIVATIONS
from oclgen.measuring.attention_reference import attention, attention_inputs
from oclgen.measuring.packed_reference import packed, packed_inputs
from oclgen.problem import (
    INTEGERS,
    AttentionProblem,
    ConvProblem,
    GemmProblem,
    PackedProblem,
    Problem,
    Volume,
    is_ragged,
)

Array = NDArray[Any]


PERIOD = 4_194_301
"""Random numbers drawn per input; larger inputs repeat them. A prime, so that no two rows, planes
or batch items are alike."""


IMAGES = ("x", "y", "residual")
"""Roles of the buffers that a convolution's layout is about."""


def random_inputs(problem: Problem, seed: int) -> dict[str, Array]:
    """Return fresh standard-normal fp32 inputs by role; the outputs' roles are left out.

    Attention's sums of rows are such that its probabilities are some, and its seed is an integer;
    packed weights are bytes; integers are all that their dtype has, each as often; ragged batch
    items end anywhere, and the last at the last row.
    """
    rng = np.random.default_rng(seed)
    drawn = {
        role: np.resize(rng.standard_normal(min(math.prod(shape), PERIOD), np.float32), shape)
        for role, shape in problem.buffers.items()
        if role not in problem.outputs
    }
    if problem.dtype in INTEGERS:
        return {role: _integers(rng, array.shape, problem.dtype) for role, array in drawn.items()}
    if is_ragged(problem):
        drawn["ends"] = _ends(rng, problem)
    fitted = _FITTED.get(problem.op)
    return drawn if fitted is None else fitted(problem, drawn, seed)


def _integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    info = np.iinfo(dtype)
    count = min(math.prod(shape), PERIOD)
    return np.resize(rng.integers(info.min, info.max + 1, count, dtype), shape)


def _ends(rng: np.random.Generator, problem: GemmProblem) -> Array:
    rows = problem.batch * getattr(problem, problem.ragged)
    inner = rng.integers(0, rows + 1, problem.batch - 1, np.int32)
    return np.sort(np.append(inner, np.int32(rows)))


_FITTED = {"attention": attention_inputs, "packed": packed_inputs}


def references(problem: Problem, inputs: dict[str, Array]) -> dict[str, Array]:
    """Return all of the problem's outputs in float64, by role, shaped like their buffers."""
    if isinstance(problem, AttentionProblem):
        return attention(problem, inputs)
    return {problem.output: reference(problem, inputs)}


def reference(problem: Problem, inputs: dict[str, Array]) -> Array:
    """Return the problem's output, its first if there are several, as `references` does."""
    if isinstance(problem, AttentionProblem):
        return attention(problem, inputs)[problem.output]
    if isinstance(problem, PackedProblem):
        return packed(problem, inputs)
    wide = {role: value.astype(np.float64) for role, value in inputs.items()}
    if isinstance(problem, GemmProblem):
        return _gemm(problem, wide)
    if problem.volume:
        wide[problem.read] = _windows(wide[problem.read], problem.volume)
    if problem.layout == "nchw":
        return _CONV[problem.direction](problem, wide)
    planes = {role: np.moveaxis(v, 3, 1) if role in IMAGES else v for role, v in wide.items()}
    plain = replace(problem, layout="nchw", volume=None)
    result = _CONV[problem.direction](plain, planes)
    return np.moveaxis(result, 1, 3)  # a gradient of weights lies in channels_last, too


def _gemm(p: GemmProblem, t: dict[str, Array]) -> Array:
    if p.ragged:
        return _ragged(p, t)
    a = t["a"].swapaxes(1, 2) if p.trans_a else t["a"]
    b = t["b"].swapaxes(1, 2) if p.trans_b else t["b"]
    c = np.broadcast_to(np.matmul(a, b), (p.batch, p.m, p.n))
    if p.bias != "none":
        c = c + (t["bias"][:, None] if p.bias == "m" else t["bias"])
    return ACTIVATIONS[p.activation].reference(c + t["residual"] if p.residual else c)


def _ragged(p: GemmProblem, t: dict[str, Array]) -> Array:
    items = [slice(*both) for both in pairwise((0, *t["ends"].astype(int)))]
    b = t["b"].swapaxes(1, 2) if p.trans_b else t["b"]
    if p.ragged == "k":
        rows, columns = t["a"].reshape(-1, p.m), b.reshape(-1, p.n)
        return np.stack([rows[item].T @ columns[item] for item in items])
    rows = t["a"].reshape(-1, p.k)
    found = np.zeros((len(rows), p.n))
    for item, one in zip(items, b, strict=True):
        found[item] = rows[item] @ one
    return found.reshape(p.batch, p.m, p.n)


def _windows(images: Array, volume: Volume) -> Array:
    """Return windows [batch, height, width, taps x channels] of [images, depth, ..., channels]."""
    _, taps, stride, pad, dilation = volume
    padded = np.pad(images, ((0, 0), (pad, pad), *((0, 0),) * 3))
    firsts = np.arange(volume.windows)[:, None] * stride
    windows = padded[:, firsts + np.arange(taps) * dilation]  # images, windows, taps, h, w, c
    rows = np.moveaxis(windows, 2, 4)
    return rows.reshape(-1, *rows.shape[2:4], taps * images.shape[4])


def _taps(p: ConvProblem) -> list[tuple[int, int, slice, slice]]:
    """Return (r, s, rows, columns) of the padded input that each kernel tap reads."""
    return [
        (
            r,
            s,
            slice(r * p.dilation_h, r * p.dilation_h + (p.out_h - 1) * p.stride_h + 1, p.stride_h),
            slice(s * p.dilation_w, s * p.dilation_w + (p.out_w - 1) * p.stride_w + 1, p.stride_w),
        )
        for r in range(p.kernel_h)
        for s in range(p.kernel_w)
    ]


def _grouped(x: Array, p: ConvProblem) -> Array:
    """Split the channels: [batch, channels, h, w] to [batch, groups, channels / groups, h, w]."""
    return x.reshape(x.shape[0], p.groups, -1, *x.shape[2:])


def _padded(x: Array, p: ConvProblem) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (p.pad_h, p.pad_h), (p.pad_w, p.pad_w)))


def _conv_fwd(p: ConvProblem, t: dict[str, Array]) -> Array:
    x = _grouped(_padded(t["x"], p), p)
    w = t["w"].reshape(p.groups, -1, *t["w"].shape[1:])
    y = np.zeros((p.batch, p.groups, p.out_channels // p.groups, p.out_h * p.out_w))
    for r, s, rows, cols in _taps(p):
        tap = x[..., rows, cols].reshape(p.batch, p.groups, -1, p.out_h * p.out_w)
        y += w[None, :, :, :, r, s] @ tap
    y = y.reshape(p.buffers["y"])
    if p.bias:
        y = y + t["bias"][:, None, None]
    return ACTIVATIONS[p.activation].reference(y + t["residual"] if p.residual else y)


def _conv_bwd_data(p: ConvProblem, t: dict[str, Array]) -> Array:
    y = _grouped(t["y"], p).reshape(p.batch, p.groups, -1, p.out_h * p.out_w)
    w = t["w"].reshape(p.groups, -1, *t["w"].shape[1:])
    padded = (p.batch, p.in_channels, p.height + 2 * p.pad_h, p.width + 2 * p.pad_w)
    x = _grouped(np.zeros(padded), p)
    for r, s, rows, cols in _taps(p):
        part = w[None, :, :, :, r, s].swapaxes(-1, -2) @ y
        x[..., rows, cols] += part.reshape(p.batch, p.groups, -1, p.out_h, p.out_w)
    x = x.reshape(padded)
    return x[:, :, p.pad_h : p.pad_h + p.height, p.pad_w : p.pad_w + p.width].copy()


def _conv_bwd_weights(p: ConvProblem, t: dict[str, Array]) -> Array:
    x = _grouped(_padded(t["x"], p), p)
    y = _grouped(t["y"], p).reshape(p.batch, p.groups, -1, p.out_h * p.out_w)
    w = np.zeros(
        (p.groups, p.out_channels // p.groups, p.in_channels // p.groups, p.kernel_h, p.kernel_w)
    )
    for r, s, rows, cols in _taps(p):
        tap = x[..., rows, cols].reshape(p.batch, p.groups, -1, p.out_h * p.out_w)
        w[..., r, s] = (y @ tap.swapaxes(-1, -2)).sum(axis=0)
    return w.reshape(p.buffers["w"])


_CONV: dict[str, Callable[[ConvProblem, dict[str, Array]], Array]] = {
    "fwd": _conv_fwd,
    "bwd_data": _conv_bwd_data,
    "bwd_weights": _conv_bwd_weights,
}
