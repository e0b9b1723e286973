"""Scans of dense rows by work-groups of a GPU: the totals of tiles first, then the tiles.

A work-group scans a tile in registers and local memory. Where a row has several tiles, their totals
are scanned before, by the same kernel, so that x is read twice and the result written once
(Merrill and Garland 2016, "Single-pass parallel prefix scan", section 2: reduce-then-scan).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.row_blocks import BLOCK, GROUP, SHARE, fit, places
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, Pointer, prepare
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.render import rendered

STORED = {"float": torch.float32, "double": torch.float64, "long": torch.int64, "int": torch.int32}
"""How totals are kept, by the type that is computed with; narrower integers as themselves."""


class Scan(NamedTuple):
    """What is scanned: `combine` of a and b behind it, or places of what is `better`."""

    combine: str
    neutral: str
    better: str = ""


def serves(limits: Limits) -> bool:
    """Say whether groups scan rows on a device."""
    return fit(limits, 8 * BLOCK + 16 * GROUP)


def scan_rows(scan: Scan, x: Tensor, results: Tensor, where: Tensor | None = None) -> None:
    """Write the inclusive scan of x.

    Args:
        scan: how.
        x: [rows, size], dense, with items.
        results: of its shape, dense, of the scan's dtype.
        where: the same, int64, for the places of a scan that is `better`.
    """
    rows, size = x.shape
    tiles = ceil_div(size, BLOCK)
    carried = _carried(scan, x, results.dtype, where is not None, tiles) if tiles > 1 else None
    kind = "scan" if carried is None else "carry"
    numbers = rows, size, places(size), tiles
    launch = _prepared(x.get_device(), scan, x.dtype, results.dtype, kind, numbers)
    _run(launch, x, results, where, *(carried or ()))


def _carried(
    scan: Scan, x: Tensor, dtype: torch.dtype, has_places: bool, tiles: int
) -> tuple[Tensor, Tensor | None]:
    """Return the scanned totals of each row's tiles, and their places."""
    rows, size = x.shape
    value = dtype_of(dtype).value
    totals = torch.empty((rows, tiles), dtype=STORED.get(value, dtype), device=x.device)
    where = torch.empty_like(totals, dtype=torch.int64) if has_places else None
    numbers = rows, size, BLOCK, tiles
    _run(_prepared(x.get_device(), scan, x.dtype, dtype, "totals", numbers), x, totals, where)
    scanned = torch.empty_like(totals)
    if where is None:
        scan_rows(scan, totals, scanned)
        return scanned, None
    of_totals = torch.empty_like(where)
    scan_rows(scan, totals, scanned, of_totals)
    return scanned, where.gather(1, of_totals)


def _run(launch: KernelLaunch, *tensors: Tensor | None) -> None:
    launch(*(tensor.data_ptr() for tensor in tensors if tensor is not None))


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int,
    scan: Scan,
    dtype: torch.dtype,
    result: torch.dtype,
    kind: str,
    numbers: tuple[int, int, int, int],
) -> KernelLaunch:
    """Prepare a launch for (rows, size, places of a padded row, tiles of a row).

    `kind`: "totals" of tiles, or a "scan", which may "carry" what is before a tile.
    """
    item, out = dtype_of(dtype), dtype_of(result)
    value = out.value
    source = rendered(
        "scan_rows", package="ocl_backend", dtype=item, out=out, value=value,
        totals=kind == "totals", carry=kind == "carry",
        combine=scan.combine, neutral=scan.neutral, better=scan.better, group=GROUP, share=SHARE,
    )  # fmt: skip
    stored = STORED.get(value, result).itemsize
    pointers = [item.item_bytes, stored if kind == "totals" else out.item_bytes]
    pointers += [8] * bool(scan.better)
    pointers += [stored, *[8] * bool(scan.better)] if kind == "carry" else []
    rows, size, padded, tiles = numbers
    arguments: list[Argument] = [
        *map(Pointer, pointers), np.int64(rows), np.int64(size), np.int32(padded), np.int64(tiles)
    ]  # fmt: skip
    groups = ceil_div(rows, BLOCK // padded) * tiles
    return prepare(device, source, "scan_rows", (groups * GROUP,), arguments, (GROUP,))
