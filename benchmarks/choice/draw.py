"""Problems of all kinds that a seed draws, and the variants worth measuring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from random import Random

from benchmarks.tasks import conv, gemm
from benchmarks.tasks.draw import distinct
from oclgen.limits import Limits
from oclgen.opencl.probe import TILES
from oclgen.problem import DIRECTIONS, ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant
from search_spaces.space import seeds_of
from tuned_db.choosing.nearest import distance, kind_of
from tuned_db.choosing.option import guesses

DTYPES = ("fp32", "fp32", "fp32", "bf16", "bf16", "fp16", "tf32")
"""Dtypes, as often as they are drawn; on devices without matrix units fp32 alone, and no tf32 on
processors with AMX."""
MOST_FLOPS = {"gpu": 2e11, "cpu": 2e9, "other": 2e9}
MOST_BYTES = {"gpu": 2**27, "cpu": 2**25, "other": 2**25}
"""A problem is no larger, so that a table of some hundred takes minutes."""
GUESSES, RECORDS, CROSSED, SELDOM = 6, 8, 6, 0.2
"""Variants of a problem: first guesses per family, winners of the nearest problems, and guesses
with one parameter of another variant of their family. `SELDOM` is the part of problems for which a
family shows its `DEFAULT` that guesses nothing for such a device."""


def problems(
    seed: int, count: int, limits: Limits, dtype: str = "", convolutions: bool = False
) -> list[Problem]:
    """Return different problems for a kind of device: products and convolutions by turns.

    Convolutions are drawn in all directions and both layouts.

    Args:
        seed: equal seeds give equal problems.
        count: how many.
        limits: of the device: its kind and matrix units decide sizes and dtypes.
        dtype: of all problems; "": some of those that such a device is asked for.
        convolutions: draw no products.
    """
    return distinct("choice", seed, count, partial(_any_problem, limits, dtype, convolutions))


def _any_problem(limits: Limits, only: str, convolutions: bool, random: Random) -> Problem | None:
    kind = limits.kind
    dtypes = [only] if only else _dtypes(limits)
    # of one dtype none is drawn: the seeds of older tables still give their problems
    dtype = random.choice(dtypes) if len(dtypes) > 1 else dtypes[0]
    found: Problem | None
    if random.random() < (0.0 if convolutions else 0.4):
        found = _with_dtype(
            gemm.any_product(gemm.SIZES.get(kind, gemm.SIZES["cpu"])[-1], random), dtype
        )
    else:
        found = _with_dtype(conv.any_layer(conv.BATCH[kind], MOST_FLOPS[kind], random), dtype)
    if isinstance(found, ConvProblem):
        direction = random.choice(DIRECTIONS)
        if direction == "bwd_data" and found.in_channels == 3:
            return None
        found = replace(found, direction=direction, layout=random.choice(("nchw", "nhwc")))
    if found is None or found.flops > MOST_FLOPS[kind] or found.bytes > MOST_BYTES[kind]:
        return None
    return found


def _dtypes(limits: Limits) -> Sequence[str]:
    if "mma" in limits.instructions:
        return DTYPES
    of_tiles = TILES in limits.instructions
    return [dtype for dtype in DTYPES if dtype != "tf32"] if of_tiles else ["fp32"]


def _with_dtype(found: GemmProblem | ConvProblem | None, dtype: str) -> Problem | None:
    return None if found is None else replace(found, dtype=dtype)


def variants(
    problem: Problem, limits: Limits, records: Sequence[tuple[Problem, Variant]], seed: int
) -> list[Variant]:
    """Return valid variants of a problem, good ones and others, without repetition.

    Args:
        problem: what is to be computed.
        limits: of the device.
        records: winners that are known, with their problems.
        seed: draws the crossed ones.
    """
    from oclgen.families import families_for

    kind = kind_of(problem)
    near = sorted(
        (one for one in records if kind_of(one[0]) == kind),
        key=lambda one: distance(one[0], problem),
    )
    winners = (variant.for_another(problem, limits) for _, variant in near)
    known = list(islice(dict.fromkeys(winners), RECORDS))
    random = Random(f"{problem.key()} {seed}")
    for family in families_for(problem):
        seeds = seeds_of(family.NAME, problem, limits)
        if seeds == [family.DEFAULT] and random.random() > SELDOM:
            continue
        known += [
            Variant(family.NAME, config)
            for config in dict.fromkeys((*seeds[:GUESSES], *seeds[-1:]))
        ]
    mixed = [_crossed(random.choice(known), records, random) for _ in range(CROSSED) if known]
    found = dict.fromkeys(one for one in (*known, *mixed) if one.why_not(problem, limits) is None)
    return list(found)


def offered(problem: Problem, limits: Limits) -> list[Variant]:
    """Return the guesses that dispatch offers the model, without records.

    Args:
        problem: what is to be computed.
        limits: of the device.
    """
    return [one for one in guesses(problem, limits) if one.why_not(problem, limits) is None]


def _crossed(
    variant: Variant, records: Sequence[tuple[Problem, Variant]], random: Random
) -> Variant:
    """Return a variant with one parameter's value of another variant of its family."""
    others = [other for _, other in records if other.family == variant.family]
    if not others:
        return variant
    values, other = variant.values(), random.choice(others).values()
    differing = [name for name in values if values[name] != other[name]]
    if not differing:
        return variant
    name = random.choice(differing)
    return Variant.from_values(variant.family, {**values, name: other[name]})
