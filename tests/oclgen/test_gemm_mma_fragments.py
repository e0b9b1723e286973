"""Where `mma_units` reads its tiles is what `ldmatrix` and `mma.sync` want, played on paper.

No device: the addresses in the generated text are evaluated for every lane of every warp, on tiles
that hold the name of each element.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from oclgen.families.gemm import gemm_mma
from oclgen.families.gemm.gemm_mma_tiles import Layout
from oclgen.problem import GemmProblem
from tests.oclgen.gemm_cases import MMA

PROBLEM = GemmProblem(128, 128, 64, dtype="bf16")


class Element(NamedTuple):
    """An element of op(A) or op(B)ᵀ in the tile: its row (column) of C and its step of k."""

    x: int
    k: int


def value(expression: str, **names: int) -> int:
    """Return what an integer expression of OpenCL C is for these values; none is negative."""
    return int(eval(expression.replace("/", "//"), {}, names))


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.DOTALL)
    assert match, pattern
    return match.group(1)


def memory(layout: Layout) -> dict[int, Element]:
    """Return the element at each byte address of a tile that lies as `Layout` says."""
    per_chunk, chunks = 16 // layout.elem_bytes, layout.row_bytes // 16
    elements = {}
    for row in range(layout.bytes // layout.row_bytes):
        swizzle = value(layout.swizzle("row"), row=row)
        for place in range(layout.row_bytes // layout.elem_bytes):
            moved = (place // per_chunk ^ swizzle) % chunks * per_chunk + place % per_chunk
            at = row * layout.row_bytes + moved * layout.elem_bytes
            panel, step = divmod(row, layout.tile_k)
            elements[at] = (
                Element(row, place)
                if layout.along_k
                else Element(panel * layout.panel + place, step)
            )
    assert len(elements) == layout.tile * layout.tile_k
    return elements


def ldmatrix(at: list[int], tile: dict[int, Element], transposed: bool) -> list[list[Any]]:
    """Return registers x lanes of element pairs: PTX ISA, ldmatrix, m8n8.x4 of 16 bits."""
    registers = []
    for matrix in range(4):
        rows = [[tile[at[8 * matrix + i] + 2 * j] for j in range(8)] for i in range(8)]
        if transposed:
            rows = [list(column) for column in zip(*rows, strict=True)]
        registers.append(
            [tuple(rows[lane // 4][2 * (lane % 4) + s] for s in (0, 1)) for lane in range(32)]
        )
    return registers


def wanted(role: str, register: int, lane: int, x: int, k: int) -> tuple[Element, Element]:
    """Return the pair that `mma.m16n8k16` wants: PTX ISA, fragments of A and, for two n8, of B."""
    low, high = register & 1, register >> 1
    x += lane // 4 + 8 * (low if role == "a" else high)
    k += lane % 4 * 2 + 8 * (high if role == "a" else low)
    return Element(x, k), Element(x, k + 1)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize(("tile_k", "warps"), [(16, (2, 2)), (32, (1, 4)), (64, (4, 1))])
def test_every_lane_loads_its_fragment(trans: bool, tile_k: int, warps: tuple[int, int]) -> None:
    problem = replace(PROBLEM, trans_a=trans, trans_b=trans)
    config = replace(MMA, tile_m=128, tile_n=128, tile_k=tile_k, warps_m=warps[0], warps_n=warps[1])
    text = gemm_mma.units(problem, config, "")
    loads = re.findall(r"uint4 ([ab])(\d+) = fragment(_trans)?\((.*)\);", text)
    bodies = {role: found(rf"place_t place_{role}\((.*?)\n}}", text) for role in "ab"}
    lines, places = (
        {role: found(rf"{name} (.*?);", bodies[role]).replace("\n", " ") for role in "ab"}
        for name in ("line =", "return")
    )
    per_block = config.block_m // 16 + config.block_n // 16
    assert len(loads) == per_block * tile_k // 16
    tiles = {role: memory(config.layout(problem, role)) for role in "ab"}
    start = {"a": 0, "b": config.layout(problem, "a").bytes}
    for warp in range(4):
        firsts = {"a": warp % warps[0] * config.block_m, "b": warp // warps[0] * config.block_n}
        for number, (role, index, transposed, address) in enumerate(loads):
            at = []
            for lane in range(32):
                names = {"lane": lane, "first": firsts[role], "base": 0}
                names |= {"line": value(lines[role], **names)}
                names |= {role: value(places[role], **names)}
                at.append(value(address, **names) - start[role])
            got = ldmatrix(at, tiles[role], bool(transposed))
            x, k = firsts[role] + 16 * int(index), number // per_block * 16
            for register in range(4):
                for lane in range(32):
                    assert got[register][lane] == wanted(role, register, lane, x, k)
