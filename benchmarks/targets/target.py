"""The GPUs to compile for, and what planning for them needs to know. No compiler is run.

Sources of the limits: AMD, "RDNA" and "CDNA" instruction set architecture guides (64 KiB of local
memory per work-group) and ROCm's default of 256 work-items per group; Intel, "oneAPI GPU
Optimization Guide", table of the Xe architectures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oclgen.limits import KIB, Limits

AMD, INTEL = "cl_amd_media_ops", "cl_intel_subgroups"
"""An extension by which families know the makers' devices."""


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU by the name that its compiler knows it under: `gfx90a`, `dg2`.

    `lanes` are those that its programs are built with (`oclgen.opencl.lanes`).
    """

    name: str
    maker: Literal["amd", "intel"]
    product: str
    limits: Limits
    lanes: int = 0


def _gpu(extension: str, units: int, work_items: int, local_kib: int, *instructions: str) -> Limits:
    return Limits(
        kind="gpu",
        local_bytes=local_kib * KIB,
        max_work_group=work_items,
        max_work_items=(work_items,) * 3,
        max_alloc_bytes=2**32,
        global_bytes=2**34,
        compute_units=units,
        extensions=frozenset({extension}),
        instructions=frozenset(instructions),
    )


_WAVE64, _WAVE32, _SUBS = "amd_sub64", "amd_sub32", ("intel_sub8", "intel_sub16")
_GCN5 = ("sdot4", _WAVE64)
_CDNA2, _RDNA3 = ("mfma", "sdot4", _WAVE64), ("wmma", "sudot4", _WAVE32)
_RDNA4 = ("wmma_gfx12", "sudot4", _WAVE32)
_XE = ("dp4a_intel", *_SUBS)
_HPC = ("dpas16", "dp4a_intel", "intel_sub16")
TARGETS: dict[str, Target] = {
    one.name: one
    for one in (
        Target("gfx906", "amd", "Radeon VII, Instinct MI50", _gpu(AMD, 60, 256, 64, *_GCN5)),
        Target("gfx90a", "amd", "Instinct MI210", _gpu(AMD, 104, 256, 64, *_CDNA2)),
        Target("gfx1030", "amd", "Radeon RX 6800", _gpu(AMD, 30, 256, 64, "sdot4", _WAVE32)),
        Target("gfx1100", "amd", "Radeon RX 7900 XTX", _gpu(AMD, 48, 256, 64, *_RDNA3)),
        Target("gfx1201", "amd", "Radeon RX 9070 XT", _gpu(AMD, 32, 256, 64, *_RDNA4)),
        Target("skl", "intel", "Gen9 graphics of Skylake", _gpu(INTEL, 24, 256, 64, *_SUBS)),
        Target("tgllp", "intel", "Iris Xe of Tiger Lake", _gpu(INTEL, 96, 512, 64, *_XE)),
        Target("dg2", "intel", "Arc A770", _gpu(INTEL, 512, 1024, 64, "dpas8", *_XE)),
        Target(
            "pvc",
            "intel",
            "Data Center GPU Max",
            _gpu(INTEL, 1024, 1024, 128, *_HPC),
            lanes=16,
        ),
    )
}
