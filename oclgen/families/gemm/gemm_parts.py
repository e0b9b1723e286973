"""What the GEMM families share: arguments of operands, packing, and the reduction of planes.

It is no family; a family combines these launches with a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from oclgen.families.parts.epilogue import terms
from oclgen.families.parts.planes import PLANES, VECTORS, Bias, Sum
from oclgen.plan import AnyLaunch, Arg, Launch, Scalar, buffer, ceil_div, round_up
from oclgen.problem import FREE_SIZES, GemmProblem
from oclgen.render import STORED, VECTOR_WIDTHS, fp16_bits

FREE = frozenset(FREE_SIZES["gemm"])
"""Kernels take all sizes as arguments; a text says only which edges it guards."""
PACK_STEPS = 512
"""Steps of the reduction one work-item packs: of a row, as many neighbours that a processor's
caches ask for ahead. B of 4096x4096 nt takes 10 to 18 ms with 64 steps and 6.5 to 7 with 512 (one
core, fp32)."""
ALIGNED = (
    "#define IS_ALIGNED(p, ld, bytes, width) "
    "((((size_t)(p) | (size_t)(ld) * (bytes)) & ((bytes) * (width) - 1)) == 0)"
)
"""Macro that says whether pointer and row stride are aligned to `width` elements of `bytes`."""


def operand(role: str, ld: int, batch_stride: int, name: str = "") -> tuple[Arg, Arg, Arg, Arg]:
    """Return a matrix argument: pointer, offset, row stride and batch stride, in elements.

    Args:
        role: of the buffer.
        ld: distance of neighbouring rows.
        batch_stride: distance of neighbouring batch items; 0 where they share the matrix.
        name: if not "", the strides may be replaced at launch as `ld_{name}` and `batch_{name}`,
            for views whose rows or batch items lie apart.
    """
    pointer, offset = buffer(role)
    return (
        pointer,
        offset,
        Scalar(ld, "int", f"ld_{name}" if name else ""),
        Scalar(batch_stride, "long", f"batch_{name}" if name else ""),
    )


@lru_cache(maxsize=64)
def matrix(problem: GemmProblem, role: str) -> tuple[Arg, ...]:
    """Return the argument of the dense matrix a, b or c, with strides that may be replaced."""
    _, rows, columns = problem.buffers[role]
    shared = {"a": problem.shared_a, "b": problem.shared_b, "c": False}[role]
    return operand(role, columns, 0 if shared else rows * columns, role)


def sizes(problem: GemmProblem) -> tuple[Scalar, Scalar, Scalar]:
    """Return m, n and k."""
    return Scalar(problem.m), Scalar(problem.n), Scalar(problem.k)


@cache
def aligned_preamble(dtype: str) -> str:
    """Return `IS_ALIGNED(p, ld, bytes, width)` and `ALIGNED_LOAD{w}`, `ALIGNED_STORE{w}` macros.

    `vload4` promises an element's alignment alone, and compilers for GPUs make four loads of it;
    these promise the vector's, behind a test of pointer and row stride. NVIDIA's compiler makes
    eight loads of `vloada_half8`, too, so bits are loaded, and converted behind.
    """
    lines = [
        ALIGNED,
        "#define ALIGNED_LOAD1(p) LOAD1(p)",
        "#define ALIGNED_STORE1(v, p) STORE1(v, p)",
    ]
    for width in VECTOR_WIDTHS[1:]:
        load, store = {
            "float": (f"(*(__global const float{width} *)(p))",
                      f"(*(__global float{width} *)(p) = (v))"),
            "half": (f"fp16_to_float{width}(*(__global const ushort{width} *)(p))",
                     f"(*(__global ushort{width} *)(p) = fp16_from_float{width}(v))"),
            "ushort": (f"bf16_to_float{width}(*(__global const ushort{width} *)(p))",
                       f"(*(__global ushort{width} *)(p) = bf16_from_float{width}(v))"),
        }[STORED[dtype]]  # fmt: skip
        if dtype == "fp16":
            lines.append(fp16_bits(width))
        lines += [f"#define ALIGNED_LOAD{width}(p) {load}"]
        lines += [f"#define ALIGNED_STORE{width}(v, p) {store}"]
    return "\n".join(lines)


def grid(problem: GemmProblem, tile_m: int, tile_n: int) -> tuple[int, int]:
    """Return how many tiles work-groups compute, and how many times as batch items.

    Where batch items differ in m, each may end within a tile. So there is one tile of rows more
    for each, and for the rows behind them; the work-groups find whose rows they have.

    Args:
        problem: the product.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
    """
    rows, columns = ceil_div(problem.m, tile_m), ceil_div(problem.n, tile_n)
    if problem.ragged != "m":
        return rows * columns, problem.batch
    return (ceil_div(problem.batch * problem.m, tile_m) + problem.batch + 1) * columns, 1


def ends(problem: GemmProblem) -> tuple[Arg, ...]:
    """Return where ragged batch items end, how many rows all have, and the batch; else nothing.

    A caller may give fewer rows, as `rows`: the mean is rounded up.
    """
    if not problem.ragged:
        return ()
    rows = problem.batch * getattr(problem, problem.ragged)
    return (*buffer("ends"), Scalar(rows, "int", "rows"), Scalar(problem.batch))


def sliced_rows(problem: GemmProblem, split_k: int, packs: bool = False) -> str | None:
    """Say that slices of k, or packed operands, are of batch items of one size, or None.

    Args:
        problem: the product.
        split_k: slices of k.
        packs: whether an operand is packed.
    """
    if problem.ragged and (split_k > 1 or packs):
        return (
            f"split_k={split_k} and packed operands are for batch items of one size; these differ "
            f"in {problem.ragged}"
        )
    return None


def planes(problem: GemmProblem, first_row: int = 0) -> tuple[Arg, ...]:
    """Return the operand of partial sums, fp32 [split_k][batch][m - first_row][n]."""
    return operand(PLANES, problem.n, (problem.m - first_row) * problem.n)


@lru_cache(maxsize=64)
def sum_planes(problem: GemmProblem, split_k: int, first_row: int = 0) -> Sum:
    """Return the sum of the planes into C, act(sum + bias + residual).

    Args:
        problem: the product.
        split_k: planes.
        first_row: of C that planes have; those before it are another launch's.
    """
    bias = {"none": None, "m": Bias("row", of_columns=False), "n": Bias("{}", of_columns=True)}
    batch, m, n = problem.buffers["c"]
    return Sum(
        problem, split_k, (batch, m - first_row, n), matrix(problem, "c"), bias[problem.bias],
        max(VECTORS), strided=True, first_row=first_row,
    )  # fmt: skip


@lru_cache(maxsize=64)
def sum_of_planes(problem: GemmProblem, split_k: int, first_row: int = 0) -> Launch:
    """Return the launch of `sum_planes`, which candidates share.

    Args:
        problem: the product.
        split_k: planes.
        first_row: of C that planes have.
    """
    return sum_planes(problem, split_k, first_row).launch()


def with_sum(
    problem: GemmProblem, split_k: int, product: AnyLaunch
) -> tuple[Launch | AnyLaunch, ...]:
    """Return a product's launch and, where k is split, the one that adds its planes.

    Args:
        problem: the product.
        split_k: slices of k.
        product: its launch.
    """
    return (product,) if split_k == 1 else (product, sum_of_planes(problem, split_k))


def product_args(
    problem: GemmProblem,
    split_k: int,
    multiple: int,
    packed: Mapping[str, tuple[Arg, ...]] | None = None,
    rows: tuple[int, int] | None = None,
) -> tuple[Arg, ...]:
    """Return the arguments of a kernel that writes C or, where k is split, planes of it.

    Args:
        problem: whose matrices they are.
        split_k: slices of k.
        multiple: slices but the last are whole multiples of it.
        packed: replaces the matrices a or b, by role.
        rows: the first row of C that it computes, and the one behind its last; None: all.
    """
    given = {"a": matrix(problem, "a"), "b": matrix(problem, "b"), **(packed or {})}
    inputs = (*given["a"], *given["b"])
    first, end = rows or (0, problem.m)
    lengths = (Scalar(end), Scalar(problem.n), Scalar(problem.k))
    if split_k == 1:
        added = (*terms(problem), *ends(problem))
        return (*inputs, *matrix(problem, "c"), *added, *lengths)
    length = slice_length(problem.k, split_k, multiple)
    split = (Scalar(length), Scalar(problem.batch))
    return (*inputs, *planes(problem, first), *lengths, *split)


def slice_length(k: int, split_k: int, multiple: int) -> int:
    """Return the steps of the reduction in each slice but the last.

    Args:
        k: steps of the reduction.
        split_k: slices.
        multiple: the length is a multiple of it.
    """
    return round_up(ceil_div(k, split_k), multiple)


def empty_slice(k: int, split_k: int, multiple: int, name: str = "split_k") -> str | None:
    """Say with numbers that cutting k into slices of whole `multiple`s leaves one empty.

    Args:
        k: steps of the reduction.
        split_k: slices.
        multiple: each slice but the last is a multiple of it.
        name: of the parameter that says how many slices there are.
    """
    length = slice_length(k, split_k, multiple)
    if (split_k - 1) * length < k:
        return None
    return (
        f"{name}={split_k} cuts k={k} into slices of {length} and leaves some empty; "
        f"use {name}={ceil_div(k, length)} or less"
    )
