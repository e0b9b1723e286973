"""What a kernel family is: the protocol of its module, and the traits that it declares.

It knows no family; `oclgen.families` finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, Self, cast

from oclgen.limits import Limits, broken
from oclgen.parameters import out_of_range
from oclgen.plan import Needs, Outline, Plan, ceil_div
from oclgen.problem import GemmProblem, Problem, has_volume, is_ragged
from oclgen.registers import Registers

LONGEST_SUM = 200 * 1024
"""Products that one fp32 accumulator adds. Its rounding grows with their root, from 5.9e-6 of the
sum at 100,352 products to 1.16e-5 at 401,408, and fp32 is allowed 1e-5."""

OUTLINES = 64
"""LRU bound: more than the candidates for one problem."""


@dataclass(frozen=True)
class Traits:
    """The traits of a family that tables and tests elsewhere need.

    Attributes:
        rank: Of the families that serve an untuned problem, one with a lower rank is preferred.
        conv_rank: The rank of `conv_as_NAME`, by which a GEMM family serves 1x1 convolutions; None:
            it has no such face.
        for_cpus: it was made for CPUs and runs anywhere; elsewhere it is the last choice of an
            untuned problem.
        transforming: it computes in a transformed domain, which costs digits: see
            `winograd_matrices`.
        instructions: those beyond OpenCL C that it asks a device for, each by at least one config.
        sparing: the config that takes the place of `DEFAULT` where a work-item has few registers
            (`Limits.has_few_registers`), if `DEFAULT` does not fit into them.
        for_kept_weights: its plans pay only where what they make of weights is kept between calls;
            dispatch lets another family serve where it is not.
        packing: a config that packs its operands by kernels in OpenCL C alone, though the product
            behind needs instructions that no simulator has.
        leads: says of a problem that the family serves, and a device, whether it comes before those
            with a lower rank.
        last_resort: whether dispatch offers `DEFAULT` only where no guess is valid: it is many
            times as slow as guesses in some shapes, of which the model has not seen all.
        rate: says how many multiply-adds its instructions do on a processor in the time of one of
            fp32: what a predicted time is counted against.
    """

    rank: int = 1000
    conv_rank: int | None = None
    for_cpus: bool = False
    transforming: bool = False
    for_kept_weights: bool = False
    instructions: frozenset[str] = frozenset()
    sparing: Any = None
    packing: Any = None
    leads: Callable[[Any, Limits], bool] = lambda _problem, _limits: False
    last_resort: bool = False
    rate: Callable[[Limits], float] = lambda _limits: 1.0


class Band(NamedTuple):
    """Rows of a product that a launch computes, in slices of the reduction."""

    rows: int
    slices: int


class BaseConfig:
    """The questions to every `Config`, a frozen dataclass of bounded parameters.

    A family says what it itself has against a config (`conflict`), and what its plan asks of a
    device (`needs`); what a device allows is one rule for all.
    """

    __slots__ = ()
    FREE: ClassVar[frozenset[str]] = frozenset()
    """The sizes that the family's kernels can take as arguments."""
    VOLUMES: ClassVar[bool] = False
    """Whether the family's kernels read windows of a `Volume`."""
    RAGGED: ClassVar[bool] = False
    """Whether the family's kernels find the rows of batch items that differ in a size."""
    SLICES: ClassVar[str] = ""
    """The parameter that cuts a reduction into slices, of which each has one accumulator a result.

    A family whose work-items share the sum of a result, and keep it short, names none.
    """

    def conflict(self, problem: Any, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        raise NotImplementedError

    def needs(self, problem: Any) -> Needs:
        """Return what the plan asks of a device, as `Plan.needs` has it, without planning it.

        Launches whose sizes no parameter changes, which pack or add, may be left out.
        """
        outline = outlined(self, problem)
        assert outline is not None, f"{type(self)} says neither needs nor outline"
        return outline.needs

    def outline(self, problem: Any) -> Outline | None:
        """Return the plan without texts and arguments, None where only the plan tells its sizes.

        Dispatch then asks a candidate for it twice, and plans what it chooses alone.
        """
        return None

    def in_registers(self, problem: Any) -> Registers | None:
        """Return how the inner loop fills a processor's registers, None where that is not known."""
        return None

    def multiplied(self, problem: Any) -> float:
        """Return the multiply-adds of the kernels' products over the problem's.

        They are fewer where tiles are transformed; what the transforms add does not count.
        """
        return 1.0

    def computed(self, problem: Any) -> Any:
        """Return the problem that the kernels compute: of 1x1 convolutions it may be a product."""
        return problem

    def tiled(self, problem: Any) -> Any:
        """Return the problem whose results the tiles of a work-group cover: of some, a product."""
        return self.computed(problem)

    def bands(self, problem: Any) -> tuple[Band, ...]:
        """Return the rows of a product that launch after launch computes; nothing if one does.

        It is asked of what is `computed`.
        """
        return ()

    def evened(self, problem: Any) -> frozenset[str]:
        """Return the operands whose rows are no multiple of 16 bytes, and are copied like others.

        It is asked of products alone.
        """
        return frozenset()

    def adapted(self, problem: Any, limits: Limits) -> Self:
        """Return this config, which won for another problem, for this one on a processor.

        What the family knows to depend on the problem is changed; tiles stay where they can.
        """
        return self

    def with_best_split(self, problem: Any, limits: Limits) -> Self:
        """Return this config with as many slices of the reduction as `problem` wants on a GPU."""
        return self

    def products(self, problem: Any) -> int:
        """Return the products that all slices together add for one result.

        Of convolutions it counts those of a gradient of weights, one for each position of the
        output: a filter never has that many elements.
        """
        if isinstance(problem, GemmProblem):
            return problem.k
        is_gradient = problem.direction == "bwd_weights"
        return problem.batch * problem.out_h * problem.out_w if is_gradient else 0

    def with_short_sums(self, problem: Any) -> Self:
        """Return this config with as many slices as keep each within `LONGEST_SUM` products."""
        least = self._missing_slices(problem)
        return cast(Any, replace)(self, **{self.SLICES: least}) if least else self

    def _missing_slices(self, problem: Any) -> int:
        """Return the least slices that keep sums short, or 0 if there are as many."""
        if not self.SLICES or problem.dtype != "fp32":
            return 0
        least = ceil_div(self.products(problem), LONGEST_SUM)
        return least if getattr(self, self.SLICES) < least else 0

    def _long_sum(self, problem: Any) -> str | None:
        least = self._missing_slices(problem)
        if not least:
            return None
        return (
            f"{self.SLICES}={getattr(self, self.SLICES)} leaves more than {LONGEST_SUM} of the "
            f"{self.products(problem)} products of a sum to one fp32 accumulator, which rounds "
            f"too much; use {self.SLICES}={least} or more"
        )

    def why_not(self, problem: Any, limits: Limits) -> str | None:
        """Say with numbers why this config cannot serve `problem` on such a device, or None.

        A rule that raises cannot serve, and says what it raised.
        """
        try:
            return out_of_range(self) or self.quick_why_not(problem, limits)
        except Exception as error:
            return f"its rule raised {type(error).__name__}: {error}"

    def quick_why_not(self, problem: Any, limits: Limits) -> str | None:
        """Say the same where the parameters are known to be in range: for enumerating many.

        Raises:
            Exception: whatever a rule raises.
        """
        return (
            (self.bound_sizes(problem) if problem.free else None)
            or (None if self.VOLUMES or not has_volume(problem) else "it reads no volumes")
            or self.conflict(problem, limits)
            or self._long_sum(problem)
            or broken(self.needs(problem), limits)
        )

    def bound_sizes(self, problem: Any) -> str | None:
        """Say which sizes are free or ragged that the family's kernels cannot take, or None."""
        if bound := problem.free - self.FREE:
            return f"its kernels are written for one {' and '.join(sorted(bound))}, which are free"
        if is_ragged(problem) and not self.RAGGED:
            return f"its kernels read one {problem.ragged}, in which batch items differ"
        return None


@lru_cache(maxsize=OUTLINES)
def outlined(config: BaseConfig, problem: Any) -> Outline | None:
    """Return the config's outline: what it needs is asked first, and then its features."""
    return config.outline(problem)


class Family(Protocol):
    """The names that a family's module defines."""

    NAME: str
    TRAITS: Traits
    DEFAULT: Any
    """A `Config` that is valid on every device, except for the instructions it asks for."""
    Config: Any
    """Frozen dataclass of bounded parameters (see `oclgen.parameters`) that is a `BaseConfig`."""

    def serves(self, problem: Problem, /) -> bool:
        """Say whether the family can compute the problem at all, whatever the config."""
        ...

    def guesses(self, problem: Any, limits: Limits, /) -> Iterable[Any]:
        """Return configs for an untuned problem on such a device, best guess first.

        Some may not be valid. Dispatch takes the first that is while an operator waits: up to
        there it costs less than a third of a millisecond. Where all of them cost more, they are
        yielded one by one.
        """
        ...

    def plan(self, problem: Any, config: Any, /) -> Plan:
        """Return the launch plan; the config must be valid for the problem."""
        ...
