"""What `async_tiles` writes: the order of multiply-adds, slices, and what work-groups share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oclgen.families.gemm.gemm_async import Config


def serpentine(order: str, item_m: int, item_n: int) -> list[tuple[int, int]]:
    """Return all (row, column) of a work-item so that neighbours share one of them.

    Args:
        order: "n" winds along rows, anything else along columns.
        item_m: rows of a work-item.
        item_n: columns of a work-item.
    """
    if order == "n":
        return _winding(item_m, item_n)
    return [(i, j) for j, i in _winding(item_n, item_m)]


def _winding(lines: int, places: int) -> list[tuple[int, int]]:
    return [(x, y if x % 2 == 0 else places - 1 - y) for x in range(lines) for y in range(places)]


def slice_of(tile: Config, row: int) -> str:
    """Return what leads to the steps of a work-item's slice in a tile of such rows."""
    return f"part * {tile.tile_k // tile.local_k * row} + " if tile.local_k > 1 else ""


def rows_by_owner(tile: Config, owner: Callable[[int], tuple[str, ...]]) -> dict[str, list[int]]:
    """Return a work-item's rows by the condition under which it has their sums."""
    owned: dict[str, list[int]] = {}
    for i in range(tile.item_m):
        guard = "".join(f"if ({condition}) " for condition in owner(i))
        owned.setdefault(guard, []).append(i)
    return owned


def left_by(tile: Config, group: str) -> str:
    """Return where a work-group leaves sums of `tile`.

    With `groups` it may have begun one tile before, and end in one: there are two places.
    """
    items = tile.local_m * tile.local_n
    within = f"(id % {items})" if tile.local_k > 1 else "id"
    second = f" + (tile * span > {group} * share ? {tile.groups} : 0)" if tile.groups else ""
    return f"partials + ({group}{second}) * {tile.tile_m * tile.tile_n}L + 4 * {within}"


def place_left(tile: Config, i: int, j: int) -> int:
    """Return where behind that chunk j of row i lies.

    Args:
        tile: the config.
        i: row of the work-item, below `item_m`.
        j: chunk of four columns, below `item_n / 4`.

    Returns:
        Floats behind the place that `left_by` names.
    """
    return (i * (tile.item_n // 4) + j) * 4 * tile.local_m * tile.local_n
