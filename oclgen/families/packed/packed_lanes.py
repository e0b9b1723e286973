"""Products of one row with packed weights on processors: rows of w are the lanes of vectors.

Neighbouring rows of w are interleaved by a launch that depends on weights alone, so dispatch keeps
what it makes. The product then needs no sum across lanes, and loads the numbers of a block (scale
and zero) for all lanes at once. It is not the family for GPUs, nor for bytes whose rows have one
scale: those take `packed_rows` no longer than it takes to read them. Nor is it for more rows of x,
since each number of rows would keep a copy of the weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, TypeGuard

from oclgen.families.packed.packed_formats import TEXTS
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.parameters import Item, Parts, Range, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div, round_up
from oclgen.problem import Problem
from oclgen.problem_parts import DTYPES
from oclgen.render import dtype_preamble, render

NAME, PACK = "packed_lanes", "packed_lanes_pack"
QUANTS, NUMBERS = "lane_quants", "lane_numbers"
"""Workspaces: the quants of the rows, interleaved by words, and the numbers of their blocks."""

BLOCK = 32
"""Weights that have the same numbers, in 16 bytes or, where a byte is one weight, in 32."""
WIDTHS = (4, 8, 16)
"""Lanes of a vector."""
MAX_VECTORS = 48
"""Vectors of sums of a work-item; more spill to memory."""
ITEMS_PER_UNIT = 8
"""Work-items of a core: each costs as much as some hundred weights of a row of lanes."""
FEW_LANES = 8
"""Lanes of vectors of which a processor has 16 registers, which constants of four places of bits do
not fit into; those of 16 lanes have 32. Two groups of rows then share loads of x, and a sum waits
for one of them while the other adds."""
MOST_IN_TURN = 64
"""Groups of rows that a work-item multiplies one after the other: what is asked for beyond its last
group is in vain."""
AHEAD = 1024
"""Words of quants that a processor is asked for before it reads them, where a block of a row has 4:
4096 bytes, as in `packed_rows`. Where it has 8, words are read twice as fast."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a block has beside its quants.

    Attributes:
        kind: type in OpenCL C as it is kept; "elem_t" is the problem's dtype.
        nbytes: bytes of one; 0: those of the dtype.
        count: 1, a scale, or 2, a scale and a zero.
        sign: of the zero in a weight, q * scale + zero.
        weights: how many weights have them.
    """

    kind: str
    nbytes: int
    count: int
    sign: str = "+"
    weights: int = BLOCK


FORMATS = {
    "q4_0": Numbers("half", 2, 1),
    "q4_1": Numbers("half", 2, 2),
    "q8_0": Numbers("half", 2, 1),
    "q4_k": Numbers("float", 4, 2, "-"),
    "q6_k": Numbers("float", 4, 1, weights=16),
}
"""Numbers of GGUF's formats; those of K are products, which halves do not hold exactly."""


def numbers_of(problem: PackedProblem) -> Numbers | None:
    """Return what a problem's blocks have beside their quants, None for other formats."""
    if group := problem.packing.group:
        return Numbers("elem_t", 0, 1 + problem.packing.zeros, weights=group)
    return FORMATS.get(problem.format)


def is_whole(problem: PackedProblem) -> bool:
    """Say whether a byte that is kept is one weight; those of 6 bits take a byte each, too."""
    form = TEXTS[problem.format]
    return not form.run or bool(form.upper)


def words_of(problem: PackedProblem) -> int:
    """Return the words of a block's quants, 4 bytes each: a byte is one weight or two."""
    return BLOCK // (4 if is_whole(problem) else 8)


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    item_n: Item
    lanes: Vector
    loop_n: Parts = 1
    ahead: Annotated[int, Range(0, 1 << 14)] = 0

    def conflict(self, problem: PackedProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.lanes not in WIDTHS:
            return f"lanes={self.lanes} must be one of {WIDTHS}"
        vectors = 3 * self.item_n * max(1, self.lanes // 8)
        if vectors > MAX_VECTORS:
            return (
                f"item_n={self.item_n} lanes={self.lanes} needs {vectors} vectors of sums per "
                f"work-item; at most {MAX_VECTORS} stay in registers"
            )
        return None

    def needs(self, problem: PackedProblem) -> Needs:
        """Return what the plan asks of a device."""
        frames = (Frame(PACK, (1, 1)), Frame(NAME, (1,)))
        return Needs(frames, workspaces(problem, self))


DEFAULT = Config(item_n=1, lanes=8)
TRAITS = Traits(rank=9, for_cpus=True, for_kept_weights=True)


def serves(problem: Problem) -> TypeGuard[PackedProblem]:
    """Say whether it is a product of one row with weights whose blocks have such numbers."""
    if not isinstance(problem, PackedProblem) or problem.m > 1:
        return False
    return numbers_of(problem) is not None


def guesses(problem: PackedProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind != "cpu":
        return []
    lanes = max(4, min(16, limits.native_float_width))
    ahead = AHEAD * words_of(problem)
    return [
        Config(item_n, lanes, loop_n=turns(problem.n, lanes * item_n, limits), ahead=ahead)
        for item_n in ((2, 1) if lanes <= FEW_LANES else (1, 2))
    ]


def turns(n: int, rows: int, limits: Limits, per_unit: int = ITEMS_PER_UNIT) -> int:
    """Return how often a work-item multiplies a group of rows, one group after the other.

    Args:
        n: rows of w.
        rows: of a group.
        limits: of the device.
        per_unit: work-items of a core.
    """
    items = per_unit * limits.compute_units
    return max(1, min(MOST_IN_TURN, ceil_div(n, rows) // items))


def _groups(problem: PackedProblem, config: Config) -> int:
    """Return the groups of `lanes` rows, those included that fill the last work-item's."""
    return round_up(ceil_div(problem.n, config.lanes), config.item_n)


def workspaces(problem: PackedProblem, config: Config) -> tuple[tuple[str, int], ...]:
    """Return the workspaces of interleaved weights, by role, in bytes.

    Args:
        problem: whose weights these are.
        config: says how they are interleaved.
    """
    numbers = numbers_of(problem)
    assert numbers is not None
    rows = _groups(problem, config) * config.lanes
    each = numbers.count * (numbers.nbytes or DTYPES[problem.dtype])
    return (
        (QUANTS, rows * problem.k // BLOCK * 4 * words_of(problem)),
        (NUMBERS, rows * problem.k // numbers.weights * each),
    )


def _bits(nibble: int, lanes: int, offset: int, shifted: bool, signed: bool) -> str:
    """Return the text of a vector of floats: four bits of each of the words `bits`.

    Args:
        nibble: its number in a word, of eight.
        lanes: of the vector.
        offset: what is subtracted from a weight.
        shifted: whether bits are shifted and converted; else they are laid into a float whose
            power makes the lowest of them 1.
        signed: whether they are kept as signed numbers, at the top of a word.
    """
    if shifted:
        moved = "bits" if nibble == 7 else f"(bits << {28 - 4 * nibble})"
        found = f"{moved} & 0xf0000000u" if signed else f"{moved} >> 28"
        return f"convert_float{lanes}(as_int{lanes}({found}))"
    shift = 4 * (nibble % 4)
    power, value = (127 + 23 - shift) << 23, 2 ** (23 - shift)
    moved = "bits >> 16" if nibble >= 4 else "bits"
    return f"as_float{lanes}({moved} & {15 << shift:#x}u | {power:#x}u) - {value + offset}.0f"


def packing_launch(problem: PackedProblem, config: Config, *, signed: bool) -> tuple[Launch, int]:
    """Return the launch that interleaves rows of w, and the groups of rows that it writes.

    Args:
        problem: whose weights these are.
        config: says how.
        signed: whether four bits are kept as signed numbers.
    """
    numbers = numbers_of(problem)
    assert numbers is not None
    blocks, groups = problem.k // BLOCK, _groups(problem, config)
    scales = buffer("scales") if problem.packing.group else ()

    @LazyText
    def text() -> str:
        return render(
            PACK,
            numbers=numbers,
            lanes=config.lanes,
            item_n=config.item_n,
            preamble=dtype_preamble(problem.dtype),
            row_words=words_of(problem),
            form=TEXTS[problem.format],
            packing=problem.packing,
            whole=is_whole(problem),
            signed=signed,
            copied="ushort" if problem.dtype == "fp16" else "elem_t",
        )

    pack = Launch(
        text=text,
        kernel=PACK,
        global_size=(blocks, groups),
        local_size=(1, 1),
        args=(
            *buffer("w"), *scales, *buffer(QUANTS), *buffer(NUMBERS), Scalar(problem.n),
            Scalar(problem.packing.row_bytes(problem.k)), Scalar(blocks),
        ),
        of_weights=True,
    )  # fmt: skip
    return pack, groups


def plan(problem: PackedProblem, config: Config) -> Plan:
    """Return the launch that interleaves rows of w, and the product."""
    form, whole, shifted = TEXTS[problem.format], is_whole(problem), config.lanes <= FEW_LANES
    signed = shifted and not whole and form.offset > 0
    bits = partial(_bits, lanes=config.lanes, offset=form.offset, shifted=shifted, signed=signed)
    pack, groups = packing_launch(problem, config, signed=signed)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            numbers=numbers_of(problem),
            preamble=dtype_preamble(problem.dtype),
            row_words=words_of(problem),
            form=form,
            whole=whole,
            signed=signed,
            bits=bits,
            **asdict(config),
        )

    product = Launch(
        text=text,
        kernel=NAME,
        global_size=(ceil_div(groups // config.item_n, config.loop_n),),
        local_size=(1,),
        args=(
            *buffer("x"), Scalar(problem.k, name="ld_x"), *buffer(QUANTS), *buffer(NUMBERS),
            *buffer("y"), Scalar(problem.n, name="ld_y"), Scalar(problem.n),
            Scalar(problem.k // BLOCK),
        ),
    )  # fmt: skip
    return Plan((pack, product), workspaces(problem, config))
