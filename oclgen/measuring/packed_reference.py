"""The float64 reference of products with packed weights, and random weights; numpy only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen.packed_problem import Format
from oclgen.problem import PackedProblem, Problem

Array = NDArray[Any]

SMALL = 0.02
"""Factor of the standard-normal scales: results stay in the range of fp16."""
HALVES = {"q4_0": (0,), "q4_1": (0, 2), "q8_0": (0,), "q4_k": (0, 2), "q6_k": (208,)}
"""Where fp16 numbers lie in a block, in bytes."""


def packed_inputs(problem: Problem, drawn: dict[str, Array], seed: int) -> dict[str, Array]:
    """Return standard-normal inputs with packed weights among them: any quants, small scales.

    Args:
        problem: a `PackedProblem`.
        drawn: standard-normal inputs by role; they are changed.
        seed: by which the weights are drawn.
    """
    assert isinstance(problem, PackedProblem)
    drawn["w"] = random_weights(problem.packing, problem.n, problem.k, seed)
    if "scales" in drawn:
        drawn["scales"] = drawn["scales"] * np.float32(SMALL)
    return drawn


def random_weights(packing: Format, n: int, k: int, seed: int) -> Array:
    """Return `n` rows of `k` packed weights as bytes, whose scales are small fp16 numbers.

    Args:
        packing: how they are packed.
        n: rows.
        k: weights of a row.
        seed: by which they are drawn.
    """
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (n, packing.row_bytes(k)), dtype=np.uint8)
    blocks = packed.reshape(-1, packing.block_bytes)
    for place in HALVES.get(packing.name, ()):
        scales = (SMALL * (0.5 + rng.random((len(blocks), 1)))).astype(np.float16)
        blocks[:, place : place + 2] = scales.view(np.uint8)
    return packed


def packed(problem: PackedProblem, inputs: dict[str, Array]) -> Array:
    """Return y [m, n] in float64.

    Args:
        problem: says how the weights are packed.
        inputs: by role, as the dtype stores them.
    """
    weights = unpacked(problem.packing, inputs["w"], inputs.get("scales"))
    return np.asarray(inputs["x"].astype(np.float64) @ weights.T)


def unpacked(packing: Format, w: Array, scales: Array | None = None) -> Array:
    """Return weights [n, k] in float64.

    Args:
        packing: how they are packed.
        w: uint8 [n, bytes of a row].
        scales: as the format has them.
    """
    n = len(w)
    blocks = w.reshape(-1, packing.block_bytes)
    if packing.group is None:
        return _BLOCKS[packing.name](blocks).reshape(n, -1)
    assert scales is not None
    wide = scales.astype(np.float64)
    if packing.group == 0:
        return w.view(np.int8) * wide[:, None]
    quants = (_nibbles(blocks, 16) - 8.0).reshape(n, -1, packing.group)
    if not packing.zeros:
        return (quants * wide.T[:, :, None]).reshape(n, -1)
    scale, zero = (wide[..., part].T[:, :, None] for part in (0, 1))
    return (quants * scale + zero).reshape(n, -1)


def _nibbles(quants: Array, run: int) -> Array:
    """Return 4-bit numbers: the low halves of `run` bytes, then their high halves, and so on."""
    runs = quants.reshape(len(quants), -1, 1, run)
    return np.concatenate((runs & 15, runs >> 4), axis=2).reshape(len(quants), -1)


def _half(blocks: Array, place: int) -> Array:
    return np.ascontiguousarray(blocks[:, place : place + 2]).view(np.float16).astype(np.float64)


def _q4_0(blocks: Array) -> Array:
    return (_nibbles(blocks[:, 2:], 16) - 8.0) * _half(blocks, 0)


def _q4_1(blocks: Array) -> Array:
    return _nibbles(blocks[:, 4:], 16) * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: Array) -> Array:
    return blocks[:, 2:].view(np.int8) * _half(blocks, 0)


def _q4_k(blocks: Array) -> Array:
    first, second, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate((first & 63, rest & 15 | first >> 6 << 4), axis=1)
    zeros = np.concatenate((second & 63, rest >> 4 | second >> 6 << 4), axis=1)
    quants: Array = _nibbles(blocks[:, 16:], 32).reshape(len(blocks), 8, 32)
    scale: Array = (_half(blocks, 0) * scales)[:, :, None]
    weights: Array = quants * scale - (_half(blocks, 2) * zeros)[:, :, None]
    return weights


def _q6_k(blocks: Array) -> Array:
    low = _nibbles(blocks[:, :128], 64).reshape(len(blocks), 2, 4, 32)
    pairs = blocks[:, 128:192].reshape(len(blocks), 2, 1, 32)
    high = pairs >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    quants = (low | high << 4).reshape(len(blocks), 16, 16) - 32.0
    scale = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    weights: Array = quants * scale[:, :, None]
    return weights


_BLOCKS: dict[str, Callable[[Array], Array]] = {
    "q4_0": _q4_0, "q4_1": _q4_1, "q8_0": _q8_0, "q4_k": _q4_k, "q6_k": _q6_k,
}  # fmt: skip
