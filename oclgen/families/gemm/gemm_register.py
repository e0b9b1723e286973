"""Register-tiled GEMM without local memory, for CPUs and for GPUs where staging does not pay.

It is not the family for large products on GPUs; that is `gemm_staged`. Where a device has
sub-groups whose lanes hand each other what they hold (`oclgen.opencl.sub_groups`), they can share
the loads of A.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Self, TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_amx_blocks import are_fastest
from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.families.gemm.gemm_register_text import SharedText, Text
from oclgen.families.gemm.gemm_register_tiles import (
    Preparation,
    Tile,
    blocks_of_item,
    cost,
    guessed,
    preparations,
    rows_ahead,
    steps_at_once,
)
from oclgen.families.gemm.gemm_stream import is_streamed
from oclgen.families.gemm.gemm_tiles import pack_panels, panels_of
from oclgen.families.parts.blocking import fill
from oclgen.families.parts.caches import LINE
from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.parts.packing import Packing, sizes_of
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl import sub_groups
from oclgen.opencl.sub_groups import ROW_WIDTHS, SUB_GROUPS
from oclgen.parameters import Item, Local, Parts, Range, Unroll, Vector
from oclgen.plan import (
    AnyLaunch,
    Arg,
    Launch,
    LazyText,
    Outline,
    Plan,
    Scalar,
    Spread,
    ceil_div,
    round_up,
)
from oclgen.problem import DTYPES, GemmProblem, Problem, divided_by, of_floats
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "gemm_register"
ALONE = "none"
"""The value of `share` for work-items that load all of their operands themselves."""

MAX_ACCUMULATORS = 512
"""Private floats per work-item past which every compiler tried here spills to memory."""
MAX_TEXT = 4096
"""Multiply-adds of the reduction's loop that are written out: text grows with them. Without vectors
these are eight steps of `MAX_ACCUMULATORS`."""
COSTLY = 2.0
"""A tile whose counted cost is more than this over the least is not guessed for a processor: of 7
columns an unpacked tile tests each element, which took 3.4 times as long as with B packed."""
ROWS_FOR_PAIRS = 32
"""Rows from which on a product in bf16 has no guess where pairs are multiplied: in all 60 such
products that were measured with AVX512-BF16, `gemm_register` took 1.07 to 2.9 times as long as
`gemm_pairs` (zen5_core_bf16, zen5_core_bf16_small). With fewer rows, 15 products, it took 0.36 to
1.7 times as long."""
SHARED_SUMS = 64
"""Sums that a lane of Intel's GPUs keeps in its half of 256 floats, beside operands."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE
    SLICES = "split_k"

    item_m: Item
    item_n: Item
    vec_n: Vector
    local_m: Local
    local_n: Local
    unroll_k: Unroll
    pack_a: bool
    pack_b: bool
    loop_m: Parts
    order: str
    split_k: Parts
    share: str = ALONE
    ahead: Annotated[int, Range(0, 64)] = 0

    @property
    def lanes(self) -> int:
        """Work-items that share A."""
        return 1 if self.share == ALONE else SUB_GROUPS[self.share].lanes

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec_n not in VECTOR_WIDTHS:
            return f"vec_n={self.vec_n} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.item_n % self.vec_n:
            return f"item_n={self.item_n} is no multiple of vec_n={self.vec_n}"
        if self.item_m * self.item_n > MAX_ACCUMULATORS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {self.item_m * self.item_n} "
                f"accumulators per work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        written = self.unroll_k * self.item_m * self.item_n // self.vec_n
        if written > MAX_TEXT:
            return (
                f"unroll_k={self.unroll_k} item_m={self.item_m} item_n={self.item_n} "
                f"vec_n={self.vec_n} writes out {written} multiply-adds; at most {MAX_TEXT} are"
            )
        if self.order not in ("m", "n"):
            return f"order={self.order!r} is unknown; the fastest dimension is 'm' or 'n'"
        if self.ahead and (limits.kind != "cpu" or self.pack_b or problem.trans_b):
            return (
                f"ahead={self.ahead} asks a processor for rows of B as they lie along n; use "
                "ahead=0 where B is packed or transposed, and on GPUs"
            )
        reason = None if self.share == ALONE else self._sharing_conflict(limits)
        return reason or parts.empty_slice(problem.k, self.split_k, self.unroll_k)

    def adapted(self, problem: GemmProblem, limits: Limits) -> Self:
        """Return this config with no more columns than an unpacked B: each would be tested."""
        most = problem.n // self.vec_n * self.vec_n
        is_wider = not self.pack_b and 0 < most < self.item_n
        return replace(self, item_n=most) if is_wider else self

    def _sharing_conflict(self, limits: Limits) -> str | None:
        if self.share not in SUB_GROUPS:
            return f"share={self.share} is unknown; there are {ALONE}, {', '.join(SUB_GROUPS)}"
        if reason := limits.why_no(self.share):
            return f"share={reason}"
        if self.pack_a or self.pack_b or self.order != "n":
            return (
                f"share={self.share} reads matrices as they lie, by neighbours along n; use "
                "pack_a=0, pack_b=0 and order='n'"
            )
        if self.local_n % self.lanes:
            return f"local_n={self.local_n} is no multiple of the {self.lanes} lanes that share"
        if self.lanes % self.unroll_k:
            return f"unroll_k={self.unroll_k} does not divide the {self.lanes} elements of a strip"
        if self.vec_n not in ROW_WIDTHS:
            return f"vec_n={self.vec_n}: a lane reads {ROW_WIDTHS} words of a row at once"
        return None

    @property
    def local_size(self) -> tuple[int, int, int]:
        """Work-items of a work-group, the fastest dimension first."""
        m, n = self.local_m, self.local_n
        return (m, n, 1) if self.order == "m" else (n, m, 1)

    def spread(self, problem: GemmProblem) -> Spread:
        """Return the sizes of the product's launch."""
        lanes, m_first = (1, self.order == "m") if self.share == ALONE else (self.lanes, False)
        groups_m = round_up(ceil_div(problem.m, self.item_m * self.loop_m), self.local_m)
        groups_n = round_up(ceil_div(problem.n, lanes * self.item_n) * lanes, self.local_n)
        groups = (groups_m, groups_n) if m_first else (groups_n, groups_m)
        return Spread(NAME, (*groups, problem.batch * self.split_k), self.local_size)

    def outline(self, problem: GemmProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        return Outline(_around(problem, self, self.spread(problem)), workspaces(problem, self))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return the outer product of a column of A and a row of B."""
        used = covered((problem.m, self.item_m), (problem.n, self.item_n))
        gathered = problem.trans_b and not self.pack_b
        return outer_product(
            self.vec_n,
            self.item_n // self.vec_n,
            self.item_m,
            used,
            gathered,
            panel_step=self.item_n if self.pack_b else 1 if problem.trans_b else problem.n,
            strip_step=self.item_m if self.pack_a else problem.m if problem.trans_a else 1,
        )


DEFAULT = Config(
    item_m=4, item_n=4, vec_n=4, local_m=4, local_n=16, unroll_k=1,
    pack_a=False, pack_b=False, loop_m=1, order="n", split_k=1,
)  # fmt: skip
TRAITS = Traits(rank=40, conv_rank=330, for_cpus=True)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return of_floats(problem)


def packed(problem: GemmProblem, config: Config) -> dict[str, Packing]:
    """Return the operands that are packed, by role."""
    wanted = {"a": (config.pack_a, config.item_m), "b": (config.pack_b, config.item_n)}
    return {role: panels_of(problem, role, width) for role, (pack, width) in wanted.items() if pack}


def workspaces(problem: GemmProblem, config: Config) -> tuple[tuple[str, int], ...]:
    """Return role and bytes of every workspace."""
    spaces = sizes_of(packed(problem, config).values())
    return (*spaces, *planes_space(problem, config.split_k))


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind != "cpu":
        return [*_guesses_sharing(problem, limits), *_guesses_alone(problem, limits)]
    for_pairs = _is_of_pairs(problem, limits) and problem.m >= ROWS_FOR_PAIRS
    others = for_pairs or are_fastest(problem, limits) or is_streamed(problem, limits)
    return [] if others else _guesses_on_cpu(problem, limits)


def _is_of_pairs(problem: GemmProblem, limits: Limits) -> bool:
    """Say whether `gemm_pairs` serves the product, which this family then does for few rows."""
    return problem.dtype == "bf16" and INSTRUCTION in limits.instructions


def sharing(limits: Limits) -> tuple[str, ...]:
    """Return the sub-groups that the device showed, those preferred first."""
    return tuple(name for name in SUB_GROUPS if name in limits.instructions)


def _guesses_sharing(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return a guess for Intel's GPUs, where a multiply-add reads another lane's register.

    Elsewhere that is an instruction of its own, and only the search tries it. A B that lies along k
    has no rows to read. A lane of the smallest sub-group has the most registers.
    """
    shown = [name for name in sharing(limits) if SUB_GROUPS[name].maker == "intel"]
    if not shown or problem.trans_b:
        return []
    share = min(shown, key=lambda name: SUB_GROUPS[name].lanes)
    lanes, item_n = SUB_GROUPS[share].lanes, SHARED_SUMS // 8
    split = fill(problem, limits, 8, item_n * lanes, step=8, work_items=4 * lanes)
    return [
        Config(
            item_m=min(problem.m, 8), item_n=item_n, vec_n=item_n, local_m=4, local_n=lanes,
            unroll_k=8, pack_a=False, pack_b=False, loop_m=1, order="n", split_k=split, share=share,
        )
    ]  # fmt: skip


def _guesses_alone(problem: GemmProblem, limits: Limits) -> list[Config]:
    split = fill(problem, limits, 8, 256, step=4)
    shapes = ((min(problem.m, 8), 4, 4), (1, 4, 4), (min(problem.m, 4), 1, 1))
    return [
        Config(
            item_m=item_m, item_n=item_n, vec_n=vec_n, local_m=1, local_n=64, unroll_k=4,
            pack_a=False, pack_b=False, loop_m=1, order="n", split_k=split_k,
        )
        for item_m, item_n, vec_n in shapes
        for split_k in dict.fromkeys((split, max(split // 2, 1)))
    ]  # fmt: skip


def _guesses_on_cpu(problem: GemmProblem, limits: Limits) -> list[Config]:
    width = width_of(problem, limits)
    widens = DTYPES[problem.dtype] == 2 and not _is_of_pairs(problem, limits)
    found = tuple(preparations(problem, limits, width, widens))
    shapes = [guessed(problem, limits, width, one) for one in found]
    # of few that are looked at, some have each packing and some each shape
    turns = [(at, shape) for at, some in enumerate(shapes) for shape in range(len(some))]
    turns.sort(key=sum)
    costs = {(at, shape): cost(problem, shapes[at][shape], width, found[at]) for at, shape in turns}
    dearest = COSTLY * min(costs.values())
    return [
        _on_cpu(problem, limits, found[at], shapes[at][shape], width)
        for at, shape in turns
        if costs[at, shape] <= dearest
    ]


def _on_cpu(
    problem: GemmProblem, limits: Limits, prepared: Preparation, tile: Tile, width: int
) -> Config:
    item_n = tile.vectors * width
    return Config(
        item_m=tile.rows, item_n=item_n, vec_n=width, local_m=1, local_n=1,
        unroll_k=steps_at_once(problem, prepared, tile),
        pack_a=prepared.pack_a, pack_b=prepared.pack_b, order="m", split_k=prepared.split_k,
        loop_m=blocks_of_item(problem, limits, tile, item_n),
        ahead=0 if prepared.pack_b else rows_ahead(problem, item_n),
    )  # fmt: skip


def width_of(problem: GemmProblem, limits: Limits) -> int:
    """Return the device's vector width, or less where n has fewer columns."""
    width = limits.native_float_width
    while width > 1 and width >= 2 * problem.n:
        width //= 2
    return width


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the launches: packing, the product, and the sum of its planes where k is split."""
    return Plan(_around(problem, config, _product(problem, config)), workspaces(problem, config))


def _around(
    problem: GemmProblem, config: Config, product: AnyLaunch
) -> tuple[Launch | AnyLaunch, ...]:
    """Return the product's launch between those that pack before it and the sum behind it."""
    packs = map(pack_panels, packed(problem, config).values())
    return *packs, *parts.with_sum(problem, config.split_k, product)


def _product(problem: GemmProblem, config: Config) -> Launch:
    if config.share != ALONE:
        return _shared_product(problem, config)
    text = LazyText(
        lambda: _text(
            NAME,
            problem,
            config,
            text=Text(problem, config),
            edge_n=not divided_by(problem, "n", config.item_n),
            shifted=_is_shifted(problem, config),
            line=LINE // DTYPES[problem.dtype],
        )
    )
    return config.spread(problem).launch(text, _args(problem, config))


def _is_shifted(problem: GemmProblem, config: Config) -> bool:
    """Say whether the last block of columns begins earlier, so that it ends at n.

    A processor then reads whole vectors, where it would test each element of those that cross the
    edge or lie behind it. Work-items of a group would store under different conditions.
    """
    return (
        config.local_m * config.local_n == 1
        and config.vec_n > 1
        and not config.pack_b
        and _edge_n(problem, config.item_n) == "last"
    )


def _shared_product(problem: GemmProblem, config: Config) -> Launch:
    lanes = config.lanes
    text = LazyText(
        lambda: _text(
            "gemm_register_shared",
            problem,
            config,
            text=SharedText(problem, config),
            lanes=lanes,
            sub_group=sub_groups.text(config.share),
            edge_n=_edge_n(problem, lanes * config.item_n),
        )
    )
    return config.spread(problem).launch(text, _args(problem, config))


def _text(template: str, problem: GemmProblem, config: Config, **values: Any) -> str:
    """Return a template with what both name, and with `values` of its own."""
    return render(
        template,
        **_values(config),
        preamble=dtype_preamble(problem.dtype),
        **epilogue(problem, "c", config.split_k > 1),
        trans_a=problem.trans_a,
        trans_b=problem.trans_b,
        edge_m=not divided_by(problem, "m", config.item_m),
        edge_k=not divided_by(problem, "k", config.unroll_k),
        **values,
    )


def _edge_n(problem: GemmProblem, span: int) -> str:
    """Return how a block of `span` columns meets the edge of n, as the shared template names it."""
    if divided_by(problem, "n", span):
        return "whole"
    return "last" if problem.n > span and "n" not in problem.free else "few"


def _values(config: Config) -> dict[str, Any]:
    """Return the parameters that both templates name."""
    values = asdict(config)
    del values["share"]
    return values


def _args(problem: GemmProblem, config: Config) -> tuple[Arg, ...]:
    panels = packed(problem, config)
    a, b = (
        panels[role].argument() if role in panels else parts.matrix(problem, role)
        for role in ("a", "b")
    )
    if config.split_k == 1:
        rest = (*parts.matrix(problem, "c"), *terms(problem), *parts.sizes(problem))
        return (*a, *b, *rest)
    length = parts.slice_length(problem.k, config.split_k, config.unroll_k)
    split = (Scalar(length), Scalar(problem.batch))
    return (*a, *b, *parts.planes(problem), *parts.sizes(problem), *split)
