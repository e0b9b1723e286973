"""`oclgen compare`: which of two databases, devices or drivers is faster, problem by problem."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from .console import console
from .options import json_option

if TYPE_CHECKING:
    from tuned_db import Record
    from tuned_db.views.compare import Comparison, Pair


@click.command()
@click.argument("left")
@click.argument("right", required=False)
@click.option("--left-device", default="", help="Only devices with this in name, runtime, driver.")
@click.option("--right-device", default="", help="The same for the right side.")
@json_option
def compare(
    left: str, right: str | None, left_device: str, right_device: str, as_json: bool
) -> None:
    """Compare the winners of LEFT and RIGHT (databases or export files; RIGHT defaults to LEFT).

    Each device is compared with itself, whatever its driver. With --left-device or --right-device
    two devices are, and each side must then hold one.

    Two drivers of one device: oclgen compare my.sqlite --left-device 580.1 --right-device 581.2
    """
    from tuned_db.views.compare import compare as sides
    from tuned_db.views.compare import devices_of, records_at

    if right is None and left_device == right_device:
        raise click.UsageError("Both sides are the same; give RIGHT, or --left-device and so on.")
    across = bool(left_device or right_device)
    both = (records_at(left, left_device), records_at(right or left, right_device))
    for side, records in zip(("left", "right"), both, strict=True):
        names = devices_of(records)
        if across and len(names) > 1:
            raise click.UsageError(f"--{side}-device fits {len(names)}: {', '.join(names)}")
    found = sides(*both, across=across)
    if as_json:
        click.echo(json.dumps(_values(found), indent=1))
    else:
        _print(found)


def _values(found: Comparison) -> dict[str, Any]:
    pairs = [
        {
            "problem": pair.left.problem,
            "cache": pair.left.cache,
            "left_device": asdict(pair.left.device),
            "right_device": asdict(pair.right.device),
            "left_verified": pair.left.verified,
            "right_verified": pair.right.verified,
            "left_ms": pair.left.ms,
            "right_ms": pair.right.ms,
            "speedup": pair.speedup,
            "left_family": pair.left.family,
            "right_family": pair.right.family,
        }
        for pair in found.pairs
    ]
    return {
        "speedup": found.speedup,
        "pairs": pairs,
        "only_left": found.only_left,
        "only_right": found.only_right,
    }


def _devices(pair: Pair) -> str:
    """Name the device, both where they differ, and the drivers where these do."""
    left, right = pair.left.device, pair.right.device
    if left == right:
        return left.name
    if (left.name, left.runtime) == (right.name, right.runtime):
        return f"{left.name}, drivers {left.driver_version} and {right.driver_version}"
    return f"{left.name} ({left.runtime}) and {right.name} ({right.runtime})"


def _variant(record: Record) -> str:
    return record.family if record.verified else f"{record.family}, unverified"


def _print(found: Comparison) -> None:
    out = console()
    if found.pairs:
        table = Table("device", "problem", "left ms", "right ms", "faster by", "left", "right")
        for pair in found.pairs:
            cold = " (cold)" if pair.left.cache == "cold" else ""
            times = (f"{pair.left.ms:.4g}", f"{pair.right.ms:.4g}", f"{pair.speedup:.2f}x")
            variants = (_variant(pair.left), _variant(pair.right))
            table.add_row(_devices(pair), pair.left.problem + cold, *times, *variants)
        out.print(table)
    mean = "" if found.speedup is None else f"; geometric mean {found.speedup:.3f}x"
    faster = sum(pair.speedup > 1 for pair in found.pairs)
    out.print(
        f"{len(found.pairs)} problems on both sides, {faster} of them faster on the right{mean}; "
        f"{len(found.only_left)} only left, {len(found.only_right)} only right"
    )
