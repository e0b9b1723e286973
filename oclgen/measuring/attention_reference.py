"""The float64 reference of attention and its gradients; numpy only, one head at a time."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen.problem import AttentionProblem, Problem

Array = NDArray[Any]

CHANCE = 0.75
"""The part of the probabilities that dropout keeps where a plan's scalars are not replaced."""
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)


def attention_inputs(problem: Problem, drawn: dict[str, Array], seed: int) -> dict[str, Array]:
    """Return standard-normal inputs made fit for attention.

    lse grows with the number of keys, so that probabilities stay in the range of fp16, and the
    seed and counter of dropout are integers.

    Args:
        problem: an `AttentionProblem`.
        drawn: standard-normal inputs by role; they are changed.
        seed: that drew them.
    """
    assert isinstance(problem, AttentionProblem)
    if "lse" in drawn:
        drawn["lse"] = drawn["lse"] / 2 + np.float32(log(problem.keys) + 0.5)
    if problem.dropout:
        drawn["random"] = np.array([seed, 2**32 - 7], dtype=np.int64)
    return drawn


def attention(problem: AttentionProblem, inputs: dict[str, Array]) -> dict[str, Array]:
    """Return all outputs in float64, by role.

    Args:
        problem: says which those are.
        inputs: by role, as the dtype stores them.
    """
    shapes = problem.buffers
    outputs = {role: np.zeros(shapes[role]) for role in problem.outputs}
    for batch in range(problem.batch):
        for head in range(problem.heads):
            shared = head // problem.shared_by
            given: dict[str, Array] = {
                role: inputs[role][batch, shared if role in "kv" else head].astype(np.float64)
                for role in ("q", "k", "v", "grad", "lse", "delta")
                if role in inputs
            }
            scores = given["q"] @ given["k"].T * problem.scale
            if problem.mask:
                scores += inputs["mask"][0, 0]
            scores[~seen(problem)] = -np.inf
            kept = _kept(problem, inputs, batch * problem.heads + head)
            for role, value in _of_head(problem, given, scores, kept).items():
                outputs[role][batch, shared if role in ("grad_k", "grad_v") else head] += value
    return outputs


def _of_head(
    problem: AttentionProblem, given: dict[str, Array], scores: Array, kept: Array | float
) -> dict[str, Array]:
    if problem.direction == "fwd":
        top = np.max(scores, axis=1, keepdims=True)
        top[np.isneginf(top)] = 0.0
        weights = np.exp(scores - top)
        total = weights.sum(axis=1)
        hidden = total == 0.0
        total[hidden] = 1.0
        out = (weights * kept) @ given["v"] / total[:, None]
        return {"out": out, "lse": np.where(hidden, np.inf, top[:, 0] + np.log(total))}
    p = np.exp(scores - given["lse"][:, None])
    slope = p * ((given["grad"] @ given["v"].T) * kept - given["delta"][:, None])
    slope *= problem.scale
    gradients: dict[str, Callable[[], Array]] = {
        "grad_q": lambda: slope @ given["k"],
        "grad_k": lambda: slope.T @ given["q"],
        "grad_v": lambda: (p * kept).T @ given["grad"],
    }
    return {role: gradients[role]() for role in problem.outputs}


def seen(problem: AttentionProblem) -> Array:
    """Return a bool [queries, keys]: which keys each query sees."""
    behind = np.arange(problem.queries)[:, None] - np.arange(problem.keys)
    visible = behind >= 0 if problem.causal else np.full_like(behind, True, dtype=bool)
    return visible & (np.abs(behind) < problem.window) if problem.window else visible


def _kept(problem: AttentionProblem, inputs: dict[str, Array], line: int) -> Array | float:
    """Return what dropout multiplies the probabilities of a head with, [queries, keys].

    Bit 3 of a query and of a key choose among the four numbers of a counter, which the other bits
    give.
    """
    if not problem.dropout:
        return 1.0
    seed, offset = (int(number) for number in inputs["random"])
    queries = np.arange(problem.queries)[:, None]
    keys = np.arange(problem.keys)
    counters = (line * problem.queries + (queries & ~8)) * problem.keys + (keys & ~8)
    number = (queries & 8) // 4 + (keys & 8) // 8
    drawn = philox(seed, np.uint64(offset) + counters.astype(np.uint64))
    uniform = (np.choose(number, drawn) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return np.where(uniform < CHANCE, 1 / CHANCE, 0.0)


def philox(seed: int, counters: Array) -> tuple[Array, Array, Array, Array]:
    """Return the four numbers of Philox4x32-10 (Salmon et al. 2011) for each 64-bit counter."""
    c0, c1 = counters & _LOW, counters >> np.uint64(32)
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(_ROUNDS):
        first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0 = (second >> np.uint64(32)) ^ c1 ^ np.uint64(key0)
        c2 = (first >> np.uint64(32)) ^ c3 ^ np.uint64(key1)
        c1, c3 = second & _LOW, first & _LOW
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3
