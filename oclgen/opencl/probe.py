"""Kernels that probe a device for instructions beyond OpenCL C, and the right answers.

`oclgen.opencl.device` runs them and keeps the answers; a device's name decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from oclgen.opencl import byte_dots, fragments, ptx, sub_groups
from oclgen.plan import Launch, Plan, buffer

ONES: NDArray[np.uint16] = np.full(256, 0x3F80, np.uint16)
"""The value that the probes read: 1.0 in bf16."""

TILES, HALF_TILES = TILE_PRODUCTS = ("tdpbf16ps", "tdpfp16ps")
"""The products of AMX's tile registers, which a process has to be allowed: of bf16, and of fp16."""

BYTE_DOTS = {"vpdpbusd": 16, "vpmaddubsw": 8}
"""Instructions of processors that multiply unsigned bytes by signed ones, and their lanes."""

ANSWERS: dict[str, NDArray[np.float32]] = {
    "cp_async": np.full(32, 1.0, np.float32),
    "mma": np.full(32, 4 * (16 + 16 + 8), np.float32),
    "wgmma": np.full(128, 4 * 16, np.float32),
    "tma": np.full(32, 8 + 1, np.float32),
    "add_vectors": np.tile(np.arange(1, 5, dtype=np.float32), 8),
    "vdpbf16ps": np.full(16, 2.0, np.float32),
    **{name: np.full(lanes, 2 * (15 * 64), np.float32) for name, lanes in BYTE_DOTS.items()},
    TILES: np.full(256, 16.0, np.float32),
    HALF_TILES: np.full(256, 16 * 1.875**2, np.float32),
    **{
        name: np.full(unit.lanes, len(unit.dtypes) * unit.sums, np.float32)
        for name, unit in fragments.UNITS.items()
    },
    **{name: np.full(1, 24_581, np.float32) for name in byte_dots.INSTRUCTIONS},
    **{
        name: np.full(2 * one.lanes, 2 + one.lanes + sum(sub_groups.ROW_WIDTHS), np.float32)
        for name, one in sub_groups.SUB_GROUPS.items()
    },
}
"""What the kernel `probe_...` writes: one element per work-item, a number that was copied or four
elements of C, each the sum of as many ones as k is long; one more than the ones in a box; vectors
of 0 to 3 with one added; the sums of 16 pairs of ones; twice those of two products of 15, with 63
and with 1; sums of 16 products of tiles, where ones are 1.875 in fp16; of each dtype how many sums
of a fragment are right; five more than the products of signed bytes, (-128)(-128) + 63 * 127 +
(-128)(-1) + 63 * 1; or how many lanes and words are right."""

FATAL = ("vdpbf16ps", *BYTE_DOTS, *TILE_PRODUCTS)
"""Instructions that a process may die of asking for: a compiler that does not know one may abort,
and a processor that lacks it raises SIGILL. `oclgen.opencl.health` asks CPUs for these,
in a child."""

NOT_OF_CPUS = ("khr_dot", *sub_groups.SUB_GROUPS)
"""Instructions that CPUs are not asked for, which takes 60 ms whenever one is opened: Intel's
runtime for them makes scalar products of `dot_4x8packed_ss_int`, and lanes of a processor read what
others hold from its first cache."""
_EXTENSIONS = {
    "dpas8": fragments.DPAS, "dpas16": fragments.DPAS, "khr_dot": byte_dots.KHR,
    "dp4a_intel": byte_dots.INTEL_GPUS,
    **{
        name: fragments.COOPERATIVE for name, unit in fragments.UNITS.items() if unit.is_cooperative
    },
    **{name: one.extension for name, one in sub_groups.SUB_GROUPS.items()},
    **dict.fromkeys(("wmma", "wmma_gfx12", "mfma", "sdot4", "sudot4"), "cl_amd_"),
}  # fmt: skip
"""How the name of an extension begins that a compiler shows which may know the instruction; else
it is NVIDIA's: a compiler of others may die of inline PTX."""
_TARGETS = {"wgmma": "sm_90a", "tma": "sm_90a"}
_WORK_ITEMS = {"add_vectors": 8} | dict.fromkeys(FATAL, 1)
"""Work-items of a probe; else as many as its answer is long."""


def probes(extensions: Collection[str], kind: str = "gpu") -> dict[str, Plan]:
    """Return the plan that tries each instruction, reading `ones` and writing `out`.

    A compiler is asked for what its extensions let expect, which says nothing yet of the device.

    Args:
        extensions: of the device.
        kind: "cpu" or another: some instructions serve no CPU.
    """
    left_out = NOT_OF_CPUS if kind == "cpu" else ()
    return {
        name: probe(name)
        for name in ANSWERS
        if name not in FATAL
        and name not in left_out
        and any(each.startswith(_EXTENSIONS.get(name, "cl_nv_")) for each in extensions)
    }


def probe(name: str) -> Plan:
    """Return the plan that tries one instruction."""
    from oclgen.render import render  # mako takes a tenth of a second, and builders need none

    if name in fragments.UNITS:
        return _probe_of_unit(name)
    if name in sub_groups.SUB_GROUPS:
        return _probe_of_sub_group(name)
    args = (*buffer("ones"), *buffer("out"))
    if name in TILE_PRODUCTS:
        source = render("probe_tiles", name=name, instruction=tiles(name))
        return Plan((Launch(source, f"probe_{name}", (1,), (1,), args),))
    if name in BYTE_DOTS:
        lanes = BYTE_DOTS[name]
        source = render("probe_byte_dots", name=name, instruction=render(name), lanes=lanes)
        return Plan((Launch(source, f"probe_{name}", (1,), (1,), args),))
    given = {"instruction": render(name)} if name in FATAL else {}
    if name in byte_dots.INSTRUCTIONS:
        source = render("probe_dot4", name=name, dot=byte_dots.INSTRUCTIONS[name])
    else:
        source = render(f"probe_{name}", **given)
    if name in _TARGETS:
        source = ptx.with_target(source, _TARGETS[name])
    items = (_WORK_ITEMS.get(name, len(ANSWERS[name])),)
    return Plan((Launch(source, f"probe_{name}", items, items, args),))


def tiles(instruction: str) -> str:
    """Return the macros of AMX's tile registers, whose product is one of `TILE_PRODUCTS`."""
    from oclgen.render import render

    return render("tiles", half=instruction == HALF_TILES)


def _probe_of_unit(name: str) -> Plan:
    """Return the plan that tries a unit in all its dtypes, one after the other."""
    from oclgen.render import render

    unit = fragments.UNITS[name]
    args = (*buffer("ones"), *buffer("out"), *buffer("operands"))
    launches = (
        Launch(
            render(
                "probe_fragments",
                name=name,
                unit=unit,
                fragments=fragments.text(name, dtype),
                staged_alignment=fragments.STAGED_ALIGNMENT,
                bits=[f"0x{each:04x}" for each in fragments.DTYPES[dtype]],
            ),
            f"probe_{name}", (unit.lanes,), (unit.lanes,), args, local_bytes=4 * unit.staged_floats,
        )
        for dtype in unit.dtypes
    )  # fmt: skip
    return Plan(tuple(launches), (("operands", 2 * 2 * 16 * fragments.STEPS),))


def _probe_of_sub_group(name: str) -> Plan:
    from oclgen.render import render

    one = sub_groups.SUB_GROUPS[name]
    source = render(
        "probe_sub_groups",
        name=name,
        lanes=one.lanes,
        widths=sub_groups.ROW_WIDTHS,
        sub_group=sub_groups.text(name),
    )
    items = (2 * one.lanes,)
    args = (*buffer("ones"), *buffer("out"), *buffer("operands"))
    words = (1 + max(sub_groups.ROW_WIDTHS)) * one.lanes
    return Plan((Launch(source, f"probe_{name}", items, items, args),), (("operands", 4 * words),))
