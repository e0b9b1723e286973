"""Which variants are compiled for a target: of every family its default, a guess and a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain
from random import Random
from typing import Any, Literal, NamedTuple

from benchmarks.targets.target import Target
from oclgen.attention_problem import ATTENTION_DIRECTIONS
from oclgen.families import FAMILIES, Family, default_of, families_for, valid_configs
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.problem import DIRECTIONS, AttentionProblem, ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant
from search_spaces.space import SPACES

Origin = Literal["default", "guess", "sample"]
TRIES = 500
"""Configs that are drawn before a space is taken for having no more valid ones."""

_RESNET = ConvProblem(8, 64, 56, 56, 64, 3, 3, pad_h=1, pad_w=1)
_STEM = ConvProblem(8, 3, 224, 224, 64, 7, 7, 2, 2, 3, 3)
_DEPTHWISE = ConvProblem(8, 96, 28, 28, 96, 3, 3, 2, 2, 1, 1, groups=96)
_POINTWISE = ConvProblem(8, 128, 28, 28, 512, 1, 1)
PROBLEMS: tuple[Problem, ...] = (
    GemmProblem(1024, 1024, 1024),
    GemmProblem(1024, 1024, 1024, "bf16", trans_b=True),
    GemmProblem(8, 4096, 4096, "fp16", trans_b=True),
    GemmProblem(1000, 576, 2048, "fp16", trans_a=True),
    GemmProblem(1024, 1024, 1024, "int8", trans_b=True),
    GemmProblem(1000, 576, 2048, "int8"),
    *(replace(one, direction=way) for one in (_RESNET, _DEPTHWISE) for way in DIRECTIONS),
    *(
        replace(one, direction=way, layout="nhwc", dtype="bf16")
        for one in (_RESNET, _DEPTHWISE)
        for way in DIRECTIONS
    ),
    replace(_STEM, direction="bwd_weights"),
    _POINTWISE,
    replace(_POINTWISE, layout="nhwc", dtype="bf16"),
    *(
        AttentionProblem(8, 16, 16, 2048, 2048, 64, 64, dtype, direction, causal=True)
        for dtype in ("fp32", "fp16")
        for direction in ATTENTION_DIRECTIONS
        if direction != "bwd"  # is for processors
    ),
    AttentionProblem(1, 32, 8, 1, 2048, 128, 128, "bf16"),
    PackedProblem(1, 4096, 4096, "bf16", "q4_k"),
    PackedProblem(8, 4096, 4096, "fp16", "int4_128z"),
    PackedProblem(512, 4096, 4096, "fp32", "q6_k"),
)
"""One or two of every kind that has kernels of its own."""


class Case(NamedTuple):
    """A variant for a problem, and where its config comes from."""

    problem: Problem
    origin: Origin
    variant: Variant


def cases(target: Target, seed: int, samples: int, families: tuple[str, ...] = ()) -> list[Case]:
    """Return what is compiled for a target: each variant of a problem once.

    Args:
        target: whose limits decide what is valid.
        seed: draws the sample, for each problem and family alike whatever others there are.
        samples: configs that are drawn of each space, for each problem.
        families: only these; all if there are none.
    """
    found: dict[tuple[Problem, Variant], Case] = {}
    for problem in PROBLEMS:
        for family in families_for(problem):
            if families and family.NAME not in families:
                continue
            for origin, config in _configs(family, problem, target.limits, seed, samples):
                variant = Variant(family.NAME, config)
                if variant.why_not(problem, target.limits) is None:
                    found.setdefault((problem, variant), Case(problem, origin, variant))
    return list(found.values())


def unasked(target: Target) -> dict[str, str]:
    """Return why the families that no problem can be given to on a target cannot serve there."""
    reasons = {}
    for name, family in FAMILIES.items():
        asked = [one for one in PROBLEMS if family.serves(one)]
        if all(next(valid_configs(family, one, target.limits), None) is None for one in asked):
            why = (family.DEFAULT.why_not(one, target.limits) for one in asked)
            reasons[name] = next(filter(None, why), "no problem here is of its kind")
    return reasons


def _configs(
    family: Family, problem: Problem, limits: Limits, seed: int, samples: int
) -> Iterator[tuple[Origin, Any]]:
    yield "default", default_of(family, problem, limits)
    for config in chain(list(valid_configs(family, problem, limits))[:1]):
        yield "guess", config
    values = SPACES[family.NAME](problem, limits) if family.NAME in SPACES else {}
    random = Random(f"{seed} {family.NAME} {problem.key()}")
    drawn = 0
    for _ in range(TRIES if values else 0):
        chosen = {name: random.choice(each) for name, each in values.items()}
        config = family.Config(**{**asdict(family.DEFAULT), **chosen})
        if config.why_not(problem, limits) is None:
            yield "sample", config
            drawn += 1
        if drawn == samples:
            return
