"""Products of many rows with packed weights: they are unpacked once, then any GEMM family computes.

Unpacked weights are written and read again, in the problem's dtype. For few rows that takes longer
than the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Annotated, TypeGuard

from oclgen.families.gemm import gemm_staged
from oclgen.families.packed.packed_rows import WIDTHS
from oclgen.families.packed.packed_unpacking import KERNEL, shape_for, unpacking
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.parameters import Local, Parts, Range
from oclgen.plan import Arg, Buffer, Frame, Needs, Offset, Plan, Scalar
from oclgen.problem import DTYPES, GemmProblem, Problem
from oclgen.variant import Nested, Variant

NAME = "packed_gemm"

PRODUCT = Nested(
    ("gemm_register", "gemm_staged", "gemm_async", "gemm_mma", "gemm_tma", "gemm_pairs")
)
"""The families that can do the product."""
ROLES = {"a": "x", "b": "unpacked", "c": "y"}
NAMES = {"ld_a": "ld_x", "ld_c": "ld_y"}
"""Row strides that a caller may replace, by their names in the product."""
GUESSED = 4
"""Products that are guessed of each family."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters: how weights are unpacked, and the text of the product's `Variant`.

    `steps` stripes of `width` bytes are a work-item's, `local_t` work-items a group's.
    """

    FREE = frozenset({"m"})

    width: Annotated[int, Range(4, 16)]
    steps: Parts
    local_t: Local
    gemm: Annotated[str, PRODUCT]

    def conflict(self, problem: PackedProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.width not in WIDTHS:
            return f"width={self.width} must be of {WIDTHS}"
        return _product_why_not(self.gemm, product(problem), limits)

    def needs(self, problem: PackedProblem) -> Needs:
        """Return what the plan asks of a device."""
        needs: Needs = Variant.from_text(self.gemm).config.needs(product(problem))
        frame = Frame(KERNEL, (self.local_t, 1))
        return Needs((frame, *needs.frames), (_unpacked(problem), *needs.workspaces))


DEFAULT = Config(
    width=4,
    steps=1,
    local_t=32,
    gemm=Variant(gemm_staged.NAME, gemm_staged.DEFAULT).to_text(),
)
TRAITS = Traits(rank=20)


def serves(problem: Problem) -> TypeGuard[PackedProblem]:
    """Say whether it is a product with packed weights."""
    return isinstance(problem, PackedProblem)


def product(problem: PackedProblem) -> GemmProblem:
    """Return the product with the weights as they are unpacked, [n, k]."""
    return GemmProblem(
        problem.m, problem.n, problem.k, problem.dtype, trans_b=True, free=problem.free
    )


def guesses(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs for an untuned problem, best guess first; some may not be valid."""
    from oclgen.families import preferred, valid_configs  # they are imported after this one

    width, steps, local_t = shape_for(limits)
    gemm = product(problem)
    for family in preferred(gemm, limits):
        if family.NAME in PRODUCT.families:
            for config in islice(valid_configs(family, gemm, limits), GUESSED):
                yield Config(width, steps, local_t, Variant(family.NAME, config).to_text())


def plan(problem: PackedProblem, config: Config) -> Plan:
    """Return the launch that unpacks, and those of the product."""
    gemm = Variant.from_text(config.gemm).plan(product(problem))
    first = unpacking(problem, config.width, config.steps, config.local_t, ROLES["b"])
    launches = (replace(launch, args=tuple(map(_renamed, launch.args))) for launch in gemm.launches)
    workspaces = (_unpacked(problem), *gemm.workspaces)
    return replace(gemm, launches=(first, *launches), workspaces=workspaces)


def _unpacked(problem: PackedProblem) -> tuple[str, int]:
    return ROLES["b"], problem.n * problem.k * DTYPES[problem.dtype]


def _renamed(arg: Arg) -> Arg:
    if isinstance(arg, Scalar):
        return arg._replace(name=NAMES.get(arg.name, ""))
    if isinstance(arg, Buffer):
        return Buffer(ROLES.get(arg.role, arg.role))
    return Offset(ROLES.get(arg.role, arg.role))


@lru_cache(maxsize=4096)
def _product_why_not(text: str, gemm: GemmProblem, limits: Limits) -> str | None:
    variant = Variant.from_text(text)
    reason = variant.why_not(gemm, limits)
    return f"the product by {variant.family}: {reason}" if reason else None
