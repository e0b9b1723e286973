"""Times the first minute: a network's first evaluation and first training step, caches empty.

    python -m benchmarks first-use resnet18 mobilenet_v2 --batch 8 --device 0

Each network runs in two new processes, one after the other, that share a cache folder which is
empty before the first: programs of this project, of pyopencl and of the drivers that say where
they keep theirs. The shim is taken along, and what comes before the first step (imports, opening
devices, making the network) is not counted. A line has the seconds of both steps, and the numbers
of programs that were built and loaded with the seconds of each, added over all processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import copy2
from typing import Any

CACHES = {
    "XDG_CACHE_HOME": ".",  # oclgen, pyopencl, PoCL
    "CUDA_CACHE_PATH": "nvidia",  # NVIDIA's OpenCL, too
    "NEO_CACHE_DIR": "neo",  # Intel's for GPUs
    "cl_cache_dir": "intel",  # Intel's older ones
}
"""Environment variables by which libraries find their caches."""
MODES = ("eval", "train")


def main(networks: Sequence[str], batch: int, device: int) -> None:
    """Print a line for each process.

    Args:
        networks: torchvision's names, or `timm.NAME`.
        batch: images.
        device: index.
    """
    print(f"{'network':20}{'process':>8}" + "".join(f"{head:>9}" for head in _HEADS) + "   s")
    for network in networks:
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | _empty_caches(Path(folder))
            for process in ("first", "second"):
                row = _measured(network, batch, device, environment)
                figures = "".join(f"{row[head]:9.3g}" for head in _HEADS)
                print(f"{network:20}{process:>8}{figures}", flush=True)


_HEADS = (*MODES, "built", "build_s", "loaded", "load_s")


def _empty_caches(folder: Path) -> dict[str, str]:
    """Return the variables that point all caches below `folder`, which then has the shim alone."""
    from ocl_backend.runtime import shim

    source = shim.path()  # compiled, if it was not
    target = folder / source.relative_to(source.parents[2])
    target.parent.mkdir(parents=True)
    copy2(source, target)
    return {name: str(folder / place) for name, place in CACHES.items()}


def _measured(network: str, batch: int, device: int, environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", __name__, network, str(batch), str(device)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def first_steps(network: str, batch: int, device: int) -> dict[str, float]:
    """Return what the first steps of this process cost: seconds and numbers of programs.

    Args:
        network: torchvision's name, or `timm.NAME`.
        batch: images.
        device: index.
    """
    import ocl_backend  # noqa: F401 (registers the device)
    from benchmarks.tasks import networks
    from oclgen.opencl.device import devices

    row: dict[str, float] = {}
    for mode in MODES:
        step = networks.step(network, mode, batch, f"ocl:{device}")
        begin = time.perf_counter()
        step()  # it ends when its result is at home
        row[mode] = time.perf_counter() - begin
    return row | asdict(devices()[device].programs.tally)


if __name__ == "__main__":
    print(json.dumps(first_steps(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
