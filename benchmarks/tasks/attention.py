"""Attention of the benchmarks, chosen and drawn, through torch's operator on both sides.

    python -m benchmarks attention --device 0

A row is the forward pass, or that and the gradients of query, key and value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Literal, NamedTuple

from benchmarks.tasks.draw import Draw, distinct, log_uniform
from benchmarks.tasks.task import Task
from benchmarks.timing import Call
from oclgen.attention_problem import Direction
from oclgen.keys import parse_key
from oclgen.limits import Limits
from oclgen.problem import AttentionProblem

Mode = Literal["forward", "train"]
MODES: tuple[Mode, ...] = ("forward", "train")
DIRECTIONS: dict[Mode, tuple[Direction, ...]] = {"forward": ("fwd",), "train": ("fwd", "bwd")}
"""What has to be computed: gradients by five products, though two kernels need seven."""
GRADIENTS: dict[Mode, str] = {"forward": "", "train": " with gradients"}
"""What the name of a group of drawn shapes ends with."""
CHOSEN = {
    "cpu": (
        AttentionProblem(1, 8, 8, 512, 512, 64, 64, causal=True),
        AttentionProblem(2, 12, 12, 197, 197, 64, 64),
    ),
    "gpu": (
        AttentionProblem(8, 16, 16, 2048, 2048, 64, 64, causal=True),
        AttentionProblem(4, 32, 32, 4096, 4096, 128, 128, causal=True),
    ),
}
"""Causal attention of language models, and that of a vision transformer."""
DECODING = AttentionProblem(1, 32, 32, 1, 2048, 128, 128)
DIMS = (32, 64, 80, 96, 128)
SHARED = (1, 1, 2, 4, 8)
"""Heads of the query for one of key and value: of half of the drawn shapes one."""
LONGEST = {"cpu": 512, "gpu": 4096}
MOST_FLOPS = {"cpu": 2e9, "gpu": 3e11}
DRAWN = 6


class Case(NamedTuple):
    """What is computed forward, and whether the gradients are, too."""

    problem: AttentionProblem
    mode: Mode


def drawn(seed: int, count: int, kind: str) -> list[AttentionProblem]:
    """Return different attentions of random sizes, for a kind of device, in fp32.

    Args:
        seed: equal seeds give equal shapes.
        count: shapes.
        kind: "cpu" or "gpu": how large they are.
    """
    return distinct("attention", seed, count, partial(_any, kind if kind in LONGEST else "cpu"))


def _any(kind: str, random: Random) -> AttentionProblem | None:
    shared, dim = random.choice(SHARED), random.choice(DIMS)
    kv_heads, batch = log_uniform(random, 1, 16), log_uniform(random, 1, 8)
    keys = log_uniform(random, 64, LONGEST[kind])
    causal = random.random() < 0.5
    queries = keys if causal or random.random() < 0.5 else log_uniform(random, 1, keys)
    found = AttentionProblem(
        batch, shared * kv_heads, kv_heads, queries, keys, dim, dim, causal=causal
    )
    return found if found.flops <= MOST_FLOPS[kind] else None


def tasks(limits: Limits, draw: Draw, dtypes: tuple[str, ...] = ()) -> Iterator[Task]:
    """Yield the calls; in `dtypes`, or else in fp32 and bf16.

    Args:
        limits: of the device.
        draw: how many shapes are drawn at random, and their seed.
        dtypes: of the operands.
    """
    kind = "gpu" if limits.kind == "gpu" else "cpu"
    for dtype in dtypes or ("fp32", "bf16"):
        if dtype == "tf32":
            continue
        for problem in CHOSEN[kind]:
            for mode in MODES:
                yield _task(Case(replace(problem, dtype=dtype), mode), f"attention {dtype}")
        yield _task(Case(replace(DECODING, dtype=dtype), "forward"), f"decoding {dtype}")
        for problem in drawn(draw.seed, draw.of(DRAWN), kind):
            for mode in MODES:
                case = Case(replace(problem, dtype=dtype), mode)
                yield _task(case, f"drawn attention {dtype}{GRADIENTS[mode]}", draw.seed)


def _task(case: Case, group: str, seed: int | None = None) -> Task:
    directions = DIRECTIONS[case.mode]
    parts = [replace(case.problem, direction=direction) for direction in directions]
    return Task(
        kind="attention",
        key=f"{case.problem.key().partition(':')[2]}, {case.mode}",
        groups=(group,),
        rank=1,
        dtype=case.problem.dtype,
        flops=sum(part.flops for part in parts),
        bytes=sum(part.bytes for part in parts),
        what={"key": case.problem.key(), "mode": case.mode},
        seed=seed,
    )


def call(key: str, mode: Mode, device: str) -> Call:
    """Return torch's call of attention on normally distributed numbers.

    Args:
        key: of an `AttentionProblem`.
        mode: "forward", or "train" for the gradients, too.
        device: torch's name of it.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    problem = parse_key(key)
    assert isinstance(problem, AttentionProblem)
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[problem.dtype]
    q, k, v = (
        torch.randn(problem.buffers[role], device=device).to(dtype).requires_grad_(mode == "train")
        for role in "qkv"
    )
    grouped = problem.heads != problem.kv_heads

    def forward() -> torch.Tensor:
        out: torch.Tensor = scaled_dot_product_attention(
            q, k, v, is_causal=problem.causal, enable_gqa=grouped
        )
        return out

    if mode == "forward":
        return torch.no_grad()(forward)
    grad = torch.randn(problem.buffers["out"], device=device).to(dtype)
    return lambda: torch.autograd.grad(forward(), (q, k, v), grad)
