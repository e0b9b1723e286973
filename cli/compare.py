"""`oclgen compare`: which of two databases, devices or drivers is faster, problem by problem."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from .console import console
from .options import json_option

if TYPE_CHECKING:
    from tuned_db.compare import Comparison


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

    Two drivers of one device: oclgen compare my.sqlite --left-device 580.1 --right-device 581.2
    """
    from tuned_db.compare import compare as sides
    from tuned_db.compare import records_at

    if right is None and left_device == right_device:
        raise click.UsageError("Both sides are the same; give RIGHT, or --left-device and so on.")
    found = sides(records_at(left, left_device), records_at(right or left, right_device))
    if as_json:
        click.echo(json.dumps(_values(found), indent=1))
    else:
        _print(found)


def _values(found: Comparison) -> dict[str, Any]:
    pairs = [
        {
            "problem": pair.left.problem,
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


def _print(found: Comparison) -> None:
    out = console()
    if found.pairs:
        table = Table("problem", "left ms", "right ms", "right is faster by", "left", "right")
        for pair in found.pairs:
            times = (f"{pair.left.ms:.4g}", f"{pair.right.ms:.4g}", f"{pair.speedup:.2f}x")
            table.add_row(pair.left.problem, *times, pair.left.family, pair.right.family)
        out.print(table)
    mean = "" if found.speedup is None else f"; geometric mean {found.speedup:.3f}x"
    faster = sum(pair.speedup > 1 for pair in found.pairs)
    out.print(
        f"{len(found.pairs)} problems on both sides, {faster} of them faster on the right{mean}; "
        f"{len(found.only_left)} only left, {len(found.only_right)} only right"
    )
