"""Writes docs/reference/torch-ocl.md: every public name of torch.cuda beside torch.ocl.

Run `python docs/tools/torch_ocl_page.py` after a change of either. The reasons stand here alone; a
test compares the page with what this module writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

PAGE = Path(__file__).parents[1] / "reference/torch-ocl.md"

MEANINGLESS = {
    r"\w+(Storage|Tensor)": "a class per dtype, which torch keeps for old programs",
    r"cudart|cudaStatus|CudaError|check_error|DeferredCudaCallError": "the CUDA runtime's own",
    r"current_(blas|solver)_handle|nccl|nvtx|profiler|sparse|has_magma|has_half|jiterator"
    r"|get_gencode_flags|get_arch_list|GreenContext": "libraries and tools of CUDA's",
    r"(max_)?memory_cached|reset_max_memory_cached": "deprecated: `memory_reserved`",
    r"CUDAPluggableAllocator|change_current_allocator|get_allocator_backend"
    r"|caching_allocator_(enable|disabled)": "there is one allocator, the shim's",
    r"caching_allocator_(alloc|delete)": "an address is no pointer; `pyopencl` has buffers",
    r"ExternalStream|get_stream_from_external": "streams are names, and none is the driver's",
    r"set_sync_debug_mode|get_sync_debug_mode": "`torch.profiler` shows what waits",
}
"""Why a name of torch.cuda says nothing here, by a pattern of names."""

MISSING = {
    r"MemPool|use_mem_pool": "graphs alone have pools of their own",
    r"is_tf32_supported": "`torch.ocl.matmul.allow_tf32` has no effect where it is not",
    r"list_gpu_processes": "OpenCL does not tell",
}
"""Why a name is not there, and what there is in its place."""


def reason_of(name: str, reasons: dict[str, str]) -> str | None:
    """Return why `name` is not there, or None."""
    found = [reason for names, reason in reasons.items() if re.fullmatch(names, name)]
    return found[0] if found else None


def page(module: Any) -> str:
    """Return the page's text for a module `torch.ocl`.

    Raises:
        ValueError: a name has no reason, or has one though it is there.
    """
    theirs = sorted(set(torch.cuda.__all__))
    here = [name for name in theirs if hasattr(module, name)]
    rows = list(_rows(theirs, here))
    own = sorted(set(module.__all__) - set(theirs))
    return "\n".join([
        "# torch.ocl beside torch.cuda",
        "",
        "Written by `docs/tools/torch_ocl_page.py`; a test compares it with both modules.",
        f"Of {len(theirs)} public names of torch.cuda in torch 2.13, {len(here)} are there.",
        "",
        "## There",
        "",
        "\n".join(_wrapped(here)),
        "",
        "## Of torch.ocl alone",
        "",
        "\n".join(_wrapped(own)),
        "",
        "Settings that torch keeps in `torch.backends` are also in `torch.backends.ocl`: `matmul`,",
        "`conv`, `is_available`, `is_built`.",
        "",
        "## Not there",
        "",
        "| name | state | reason |",
        "|---|---|---|",
        *rows,
        "",
    ])  # fmt: skip


def _rows(theirs: list[str], here: list[str]) -> Iterator[str]:
    for name in theirs:
        reasons = {
            state: reason
            for state, table in (("meaningless", MEANINGLESS), ("missing", MISSING))
            if (reason := reason_of(name, table))
        }
        if (name in here) != (not reasons) or len(reasons) > 1:
            raise ValueError(f"torch.ocl.{name}: present {name in here}, reasons {reasons}")
        for state, reason in reasons.items():
            yield f"| `{name}` | {state} | {reason} |"


def _wrapped(names: list[str]) -> Iterator[str]:
    line = ""
    for name in names:
        word = f"`{name}`"
        if line and len(line) + len(word) > 110:
            yield line
            line = ""
        line += f"{' ' if line else ''}{word}"
    yield line


if __name__ == "__main__":
    import ocl_backend  # noqa: F401

    PAGE.write_text(page(torch.get_device_module("ocl")))
