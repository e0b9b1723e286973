"""Attention on a GPU's matrix units in inline PTX, for fp16, bf16 and fp32.

It uses `mma.sync` or `wgmma`. Each fp32 number is split into two of tf32, so that no digits are
lost: see `attention_tf32_tiles`.

It does not serve rows that are no whole chunks of 16 bytes: `attention_register` does. For few
queries `attention_split` is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, TypeGuard

from oclgen.families.attention import attention_parts as parts
from oclgen.families.gemm.gemm_mma_tiles import Layout
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl import ptx
from oclgen.parameters import Range, Warps
from oclgen.plan import WARP, Frame, Launch, LazyText, Needs, Plan, ceil_div, round_up
from oclgen.problem import AttentionProblem, Problem
from oclgen.problem_parts import STORED_BYTES
from oclgen.render import dtype_preamble, render

NAME = "attention_mma"
ENDS = {"fwd": "", "bwd_q": "_grad_q", "bwd_kv": "_grad_kv"}
"""What a kernel's name has behind that of its unit."""
CHUNK_BYTES = 16
"""What is copied at once; rows are whole chunks, and aligned to them."""
PANEL = 64
"""Items of a row of wgmma's tiles: 128 bytes."""
BLOCK = 16
"""Rows, columns and steps of what the units multiply at once."""
MAX_REGISTERS = 232
"""Private numbers of a work-item beside which addresses still fit in 255 registers."""

MOST_WHOLE = 96
"""Items of rows of fp32 that a warp has for itself."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the three kernels; their templates begin with the legends."""

    FREE = frozenset({"batch", "queries", "keys"})

    warps: Warps
    blocks_m: Annotated[int, Range(1, 4)]
    tile_n: Annotated[int, Range(16, 256)]
    stages: Annotated[int, Range(1, 2)]
    keep: bool
    unit: str = "mma"
    split_d: Annotated[int, Range(1, 4)] = 1

    @property
    def work_items(self) -> int:
        """Work-items per group."""
        return WARP * self.warps

    @property
    def tile_m(self) -> int:
        """Rows of a work-group."""
        return BLOCK * self.blocks_m * self.warps // self.split_d

    def depths(self, problem: AttentionProblem) -> tuple[int, int]:
        """Return the items of a row of q and k, and of v, rounded up to whole blocks or panels."""
        block = PANEL if self.unit == "wgmma" else BLOCK * self.split_d
        return round_up(problem.head_dim, block), round_up(problem.value_dim, block)

    def local_bytes(self, problem: AttentionProblem) -> int:
        """Return the bytes of local memory: rows of both sides, each with a chunk after it.

        With wgmma there is nothing after, and rows that registers keep are there from the first.
        """
        # of each query, where they are columns, its lse and delta
        numbers = 2 * 4 * self.stages * self.tile_n * (problem.direction == "bwd_kv")
        if self.unit == "wgmma":
            depth, depth_v = self.depths(problem)
            own = depth + depth_v * problem.is_gradient
            items = self.stages * self.tile_n * (depth + depth_v)
            items += (not self.keep) * self.tile_m * own
            return 2 * items + numbers
        size = STORED_BYTES[problem.dtype]
        row, row_v = (size * items + CHUNK_BYTES for items in self.depths(problem))
        stages = self.stages * self.tile_n * (row + row_v) + numbers
        if self.split_d > 1:
            # scores and slopes, which the warps of a row exchange in fp32
            stages += (1 + problem.is_gradient) * 4 * self.split_d * self.tile_m * self.tile_n
        if problem.is_gradient:
            own = self.tile_m * max(row, row_v) if self.keep else self.tile_m * (row + row_v)
        else:
            own = self.tile_m * row
        return max(own, stages) if self.keep else own + stages

    def registers(self, problem: AttentionProblem) -> int:
        """Return the numbers that a work-item keeps: sums, a tile's scores, its own fragments."""
        depth, depth_v = self.depths(problem)
        sums, scores, own = {
            "fwd": (depth_v, 1, depth),
            "bwd_q": (depth, 2, depth + depth_v),
            "bwd_kv": (depth + depth_v, 2, depth + depth_v),
        }[problem.direction]
        if problem.dtype == "fp32":
            # scores are multiplied by parts, which exist beside each other
            own, scores = 2 * own, scores + 1
        kept = (sums + self.keep * own // 2) // self.split_d
        tiles = scores * self.tile_n
        if self.unit == "wgmma" and problem.direction == "fwd":
            tiles += self.tile_n // 2  # the tile before it, as pairs
        return self.blocks_m * (kept + tiles) // 2

    def kernel(self, problem: AttentionProblem) -> str:
        """Return the name of the kernel, which is its template's."""
        return f"attention_{self.unit}{ENDS[problem.direction]}"

    def conflict(self, problem: AttentionProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := limits.why_no(self.unit):
            return f"unit={reason}"
        items = items_of(problem)
        if problem.head_dim % items or problem.value_dim % items:
            return (
                f"rows of {problem.head_dim} and {problem.value_dim} elements are no whole chunks "
                f"of {items}"
            )
        if self.tile_n % BLOCK:
            return f"tile_n={self.tile_n} is no multiple of {BLOCK}"
        if self.unit == "wgmma" and (reason := self._not_wide(problem)):
            return reason
        if self.warps % self.split_d:
            return f"split_d={self.split_d} warps cannot share rows: warps={self.warps}"
        if (kept := self.registers(problem)) > MAX_REGISTERS:
            return f"a work-item would keep {kept} numbers; at most {MAX_REGISTERS} fit"
        return None

    def _not_wide(self, problem: AttentionProblem) -> str | None:
        if problem.dtype == "fp32":
            return "wgmma multiplies no parts of fp32, which would have to lie in local memory"
        if problem.direction == "fwd" and self.stages != 2:
            return f"stages={self.stages}; wgmma multiplies two tiles at once forward: use 2"
        if self.warps % 4 == 0 and self.blocks_m == self.split_d == 1:
            return None
        return (
            f"wgmma has warps in fours, blocks_m=1 and split_d=1; given are "
            f"warps={self.warps}, blocks_m={self.blocks_m}, split_d={self.split_d}"
        )

    def needs(self, problem: AttentionProblem) -> Needs:
        """Return what the plan asks of a device."""
        group = (self.work_items, 1, 1)
        return Needs((Frame(self.kernel(problem), group, self.local_bytes(problem)),))


DEFAULT = Config(warps=2, blocks_m=1, tile_n=16, stages=1, keep=False)
TRAITS = Traits(rank=510, instructions=frozenset({"mma", "wgmma"}))


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether the family can compute the problem at all."""
    return parts.serves(problem) and problem.dtype in ("fp16", "bf16", "fp32")


def items_of(problem: AttentionProblem) -> int:
    """Return the elements that are copied at once."""
    return CHUNK_BYTES // STORED_BYTES[problem.dtype]


def guesses(problem: AttentionProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs for an untuned problem, best guess first; some may not be valid."""
    if problem.dtype == "fp32":
        yield from _guesses_of_parts(problem)
        return
    if "wgmma" in limits.instructions:
        yield from _wide_guesses(problem)
    # warps, blocks_m, tile_n, stages, keep
    shapes = (
        (4, 2, 32, 2, True), (4, 1, 64, 2, True), (4, 1, 32, 2, True), (4, 1, 64, 1, True),
        (4, 1, 32, 1, True), (4, 1, 32, 1, False), (2, 1, 32, 1, False),
    )  # fmt: skip
    yield from (Config(*shape) for shape in shapes)
    yield from (Config(4, 1, 16, 1, keep=True, split_d=split_d) for split_d in (2, 4))


def _wide_guesses(problem: AttentionProblem) -> Iterator[Config]:
    # a work-group's own tiles in local memory leave registers for tiles of more rows; two such
    # work-groups fit a compute unit
    widest = max(problem.head_dim, problem.value_dim)
    narrow = widest <= PANEL
    if problem.direction == "fwd":
        if widest <= 2 * PANEL:
            yield Config(4, 1, 64 if narrow else 96, 2, keep=False, unit="wgmma")
        for tile_n in (64, 32):
            yield Config(4, 1, tile_n, 2, keep=True, unit="wgmma")
        return
    for tile_n in (128, 64, 32) if narrow and problem.direction == "bwd_kv" else (64, 32):
        yield Config(4, 1, tile_n, 2, keep=False, unit="wgmma")
    # where there is little local memory
    for stages in (2, 1):
        yield Config(4, 1, 32, stages, keep=True, unit="wgmma")


def _guesses_of_parts(problem: AttentionProblem) -> Iterator[Config]:
    # where rows are wide, warps share them: their sums alone would fill the registers
    wide = max(problem.head_dim, problem.value_dim) > MOST_WHOLE
    for split_d in (2, 4) if wide else (1, 2, 4):
        for tile_n, stages in {
            "fwd": ((32, 1), (16, 1)),
            "bwd_q": ((16, 2), (16, 1)),
            "bwd_kv": ((16, 2), (16, 1)) if wide else ((32, 1), (16, 1)),
        }[problem.direction]:
            yield Config(4, 1, tile_n, stages, keep=True, split_d=split_d)


def units(problem: AttentionProblem, config: Config) -> str:
    """Return the text of the matrix units: see `attention_mma_units`, `attention_wgmma_units`."""
    copies = render("attention_units")
    if config.unit == "mma":
        return render("attention_mma_units", copies=copies, dtype=problem.dtype)
    depth, depth_v = config.depths(problem)
    k = Layout(config.tile_n, PANEL, 2, along_k=True, packed=False, by_words=False)
    v = Layout(depth_v, config.tile_n, 2, along_k=False, packed=False, by_words=False)
    return render(
        "attention_wgmma_units", copies=copies, dtype=problem.dtype, tile_n=config.tile_n,
        depth=depth if problem.is_gradient else 0, depth_v=depth_v,
        k_descriptor=k.descriptor, v_descriptor=v.descriptor,
        own_descriptor=0 if config.keep else k.descriptor,
    )  # fmt: skip


def plan(problem: AttentionProblem, config: Config) -> Plan:
    """Return the one launch that computes the problem."""
    blocks = ceil_div(parts.rows_of(problem), config.tile_m)
    launch = Launch(
        text=LazyText(lambda: text_of(problem, config)),
        kernel=config.kernel(problem),
        global_size=(blocks * config.work_items, parts.heads_of(problem), 1),
        local_size=(config.work_items, 1, 1),
        args=parts.arguments(problem),
        local_bytes=config.local_bytes(problem),
    )
    return Plan((launch,))


def text_of(problem: AttentionProblem, config: Config) -> str:
    """Return the kernel's text."""
    depth, depth_v = config.depths(problem)
    source = render(
        config.kernel(problem),
        preamble=dtype_preamble(problem.dtype),
        **asdict(config),
        units=units(problem, config),
        tile_m=config.tile_m,
        local_bytes=config.local_bytes(problem),
        depth=depth,
        depth_v=depth_v,
        dim=problem.head_dim,
        dim_v=problem.value_dim,
        seen=parts.seen(problem),
        masked=problem.mask,
        philox=parts.philox(1) if problem.dropout else "",
        items=items_of(problem),
    )
    if config.unit != "wgmma":
        return source
    return ptx.with_target(source, "sm_90a", most_registers(problem, config))


def most_registers(problem: AttentionProblem, config: Config) -> int:
    """Return the registers of a work-item of wgmma, at most; 0: as many as the compiler takes.

    Where it keeps few numbers, the compiler takes more than it needs. Four work-groups of a forward
    pass fit a compute unit with a quarter of the registers each.
    """
    is_plain = problem.direction == "fwd" and not problem.mask and not problem.dropout
    return 128 if is_plain and config.registers(problem) <= 80 and not config.keep else 0
