"""Kernels for a processor that a driver compiles for only if its PTX says so: text to text.

Nothing here touches a device; `oclgen.opencl.device` builds what comes out.

NVIDIA's OpenCL compiles for sm_90 and refuses the instructions of sm_90a, `wgmma` among them. But
the PTX it hands out as a program's binary may name sm_90a when it is handed back. So a kernel
that needs them says so in its first line, and carries them as PTX comments:

    // ptx-target: sm_90a
    ... __asm__ volatile("//sm_90a wgmma.fence.sync.aligned;" ::: "memory");
"""

from __future__ import annotations

import re

_HEADER = "// ptx-target: "


def with_target(source: str, target: str, registers: int = 0) -> str:
    """Return `source` marked to be built for `target`, such as "sm_90a".

    Args:
        source: a kernel in OpenCL C.
        target: the processor.
        registers: of a work-item, at most; 0: as many as the compiler takes.
    """
    return f"{_HEADER}{target}{f' {registers}' if registers else ''}\n{source}"


def target_of(source: str) -> str:
    """Return the target that a source names in its first line, "" if it names none.

    Behind it stands how many registers a work-item has at most, if the source says so.
    """
    first = source.partition("\n")[0]
    return first.removeprefix(_HEADER) if first.startswith(_HEADER) else ""


def retarget(ptx: bytes, target: str) -> bytes:
    """Return `ptx` for `target`, with the instructions that stood in its comments."""
    target, _, registers = target.partition(" ")
    text = ptx.rstrip(b"\0").decode()
    if registers:
        text = re.sub(r"(\.reqntid[^\n]*)", rf"\1\n.maxnreg {registers}", text)
    text = re.sub(r"^\.target\s+\w+", f".target {target}", text, count=1, flags=re.MULTILINE)
    return text.replace(f"//{target} ", "").encode()
