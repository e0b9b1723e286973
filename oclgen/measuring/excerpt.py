"""Cuts a smaller problem out of a large one, so that its float64 reference is affordable.

It cuts along dimensions that are independent: batch items, rows of C, output channels, groups,
heads, rows of packed weights. So the excerpt's output is exactly a part of the whole output. It
uses no device and no data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen.problem import AttentionProblem, ConvProblem, GemmProblem, PackedProblem, Problem

AFFORDABLE = 8e9
"""Work of a float64 reference that is computed whole: some seconds in numpy."""
WORK_PER_ELEMENT = 100
"""Operations of a product that cost numpy as much as one element read or written."""

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Excerpt:
    """A part of a problem: the smaller problem, and per role the indices it takes, by axis."""

    problem: Problem
    cuts: dict[str, dict[int, Indices]]

    def of(self, role: str, array: NDArray[Any]) -> NDArray[Any]:
        """Return the part of the buffer with this role, shaped like the smaller problem's."""
        for axis, indices in self.cuts.get(role, {}).items():
            array = array.take(indices, axis=axis)
        return array


def excerpt(problem: Problem, seed: int, affordable: float = AFFORDABLE) -> Excerpt:
    """Return all of `problem` if it is affordable, else a random part with both ends of the axis.

    Args:
        problem: what is computed.
        seed: draws the part, along the widest independent axis.
        affordable: work of a reference that is computed whole; of a part it is about as much.
    """
    elements = sum(int(np.prod(shape)) for shape in problem.buffers.values())
    work = problem.flops + WORK_PER_ELEMENT * elements
    if work <= affordable:
        return Excerpt(problem, {})
    share = affordable / work
    if isinstance(problem, GemmProblem):
        return _of_gemm(problem, share, seed)
    if isinstance(problem, AttentionProblem):
        return _of_attention(problem, share, seed)
    if isinstance(problem, PackedProblem):
        rows = _draw(problem.n, share, seed)
        scales = 1 if problem.packing.group else 0
        cuts = {"w": {0: rows}, "scales": {scales: rows}, "y": {1: rows}}
        return Excerpt(replace(problem, n=len(rows)), cuts)
    return _of_conv(problem, share, seed)


def _draw(extent: int, share: float, seed: int) -> Indices:
    """Return sorted indices below `extent`, about `share` of them, the first and last always."""
    inner = np.random.default_rng(seed).permutation(np.arange(1, max(extent - 1, 1)))
    wanted = max(int(extent * share) - 2, 0)
    return np.unique(np.concatenate(([0, extent - 1], inner[:wanted])))


def _of_gemm(problem: GemmProblem, share: float, seed: int) -> Excerpt:
    if problem.ragged:
        columns = _draw(problem.n, share, seed)
        cuts = {"b": {1 if problem.trans_b else 2: columns}, "c": {2: columns}}
        return Excerpt(replace(problem, n=len(columns)), cuts)
    if problem.batch > 1:
        items = _draw(problem.batch, share, seed)
        cuts = {"c": {0: items}, "residual": {0: items}}
        cuts |= {} if problem.shared_a else {"a": {0: items}}
        cuts |= {} if problem.shared_b else {"b": {0: items}}
        return Excerpt(replace(problem, batch=len(items)), cuts)
    rows = _draw(problem.m, share, seed)
    cuts = {"a": {2 if problem.trans_a else 1: rows}, "c": {1: rows}, "residual": {1: rows}}
    if problem.bias == "m":
        cuts["bias"] = {0: rows}
    return Excerpt(replace(problem, m=len(rows)), cuts)


def _of_conv(problem: ConvProblem, share: float, seed: int) -> Excerpt:
    if problem.volume:
        return _of_volume(problem, share, seed)
    if problem.direction != "bwd_weights":
        items = _draw(problem.batch, share, seed)
        cuts = {role: {0: items} for role in ("x", "y", "residual")}
        return Excerpt(replace(problem, batch=len(items)), cuts)
    axis = 1 if problem.layout == "nchw" else 3
    if problem.groups == 1:
        # every number is a sum over all images, so both kinds of channels must be few
        filters = _draw(problem.out_channels, sqrt(share), seed)
        channels = _draw(problem.in_channels, sqrt(share), seed)
        cuts = {"x": {axis: channels}, "y": {axis: filters}, "w": {0: filters, axis: channels}}
        smaller = replace(problem, out_channels=len(filters), in_channels=len(channels))
        return Excerpt(smaller, cuts)
    groups = _draw(problem.groups, share, seed)
    inputs = _members(groups, problem.in_channels // problem.groups)
    outputs = _members(groups, problem.out_channels // problem.groups)
    smaller = replace(
        problem, groups=len(groups), in_channels=len(inputs), out_channels=len(outputs)
    )
    return Excerpt(smaller, {"x": {axis: inputs}, "y": {axis: outputs}, "w": {0: outputs}})


def _of_volume(problem: ConvProblem, share: float, seed: int) -> Excerpt:
    """Cut channels of what is not read in windows: windows share slices of their image."""
    if problem.direction == "bwd_data":
        channels = _draw(problem.in_channels, share, seed)
        smaller = replace(problem, in_channels=len(channels))
        return Excerpt(smaller, {"w": {1: channels}, "x": {3: channels}})
    filters = _draw(problem.out_channels, share, seed)
    cuts = {"w": {0: filters}, "bias": {0: filters}}
    cuts |= {role: {3: filters} for role in ("y", "residual")}
    return Excerpt(replace(problem, out_channels=len(filters)), cuts)


def _of_attention(problem: AttentionProblem, share: float, seed: int) -> Excerpt:
    if problem.dropout:  # a random number's counter tells the row's place in the whole problem
        return Excerpt(problem, {})
    items = _draw(problem.batch, sqrt(share), seed)
    groups = _draw(problem.kv_heads, share * problem.batch / len(items), seed)
    heads = _members(groups, problem.shared_by)
    cuts = {role: {0: items, 1: heads} for role in ("q", "out", "lse", "delta", "grad", "grad_q")}
    cuts |= {role: {0: items, 1: groups} for role in ("k", "v", "grad_k", "grad_v")}
    smaller = replace(problem, batch=len(items), heads=len(heads), kv_heads=len(groups))
    return Excerpt(smaller, cuts)


def _members(groups: Indices, size: int) -> Indices:
    """Return the channels of these groups of `size`."""
    return (groups[:, None] * size + np.arange(size)).ravel()
