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


def with_target(source: str, target: str) -> str:
    """Return `source` marked to be built for `target`, such as "sm_90a"."""
    return f"{_HEADER}{target}\n{source}"


def target_of(source: str) -> str:
    """Return the target that a source names in its first line, "" if it names none."""
    first = source.partition("\n")[0]
    return first.removeprefix(_HEADER) if first.startswith(_HEADER) else ""


def retarget(ptx: bytes, target: str) -> bytes:
    """Return `ptx` for `target`, with the instructions that stood in its comments."""
    text = ptx.rstrip(b"\0").decode()
    text = re.sub(r"^\.target\s+\w+", f".target {target}", text, count=1, flags=re.MULTILINE)
    return text.replace(f"//{target} ", "").encode()
