"""`oclgen explain`: what serves a problem on a device, what else could, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from .console import console
from .options import db_option, device_option, json_option

if TYPE_CHECKING:
    from oclgen.variant import Variant
    from tuned_db import Choice


@click.command("explain")
@click.argument("problem_text", metavar="PROBLEM")
@click.option("--count", default=8, show_default=True, help="Lines to print, best first.")
@device_option
@json_option
@db_option
def explain(problem_text: str, count: int, device: str, as_json: bool, where: str | None) -> None:
    """List the variants that can serve PROBLEM, in the order in which dispatch would take them.

    A time was measured for this very problem on this device, or is predicted by the model. Ratios
    of predicted times are reliable, their common factor is not. PROBLEM is as for `show-source`.
    """
    from oclgen.keys import parse_problem
    from oclgen.opencl.device import select
    from tuned_db import Chooser, open_if_any

    problem, target = parse_problem(problem_text), select(device)
    chooser = Chooser(open_if_any(where), target.info, target.limits)
    chooser.choose(problem)  # says why, if nothing serves
    first: dict[Variant, Choice] = {}
    for choice in chooser.candidates(problem):
        first.setdefault(choice.variant, choice)
    shown = list(first.values())[:count]
    if as_json:
        click.echo(json.dumps([_values(choice) for choice in shown], indent=1))
        return
    table = Table("rung", "measured ms", "predicted ms", "family", "config", "record of")
    for choice in shown:
        values = _values(choice)
        config = " ".join(f"{name}={value}" for name, value in values["config"].items())
        table.add_row(
            values["rung"], _text(choice.ms), _text(choice.predicted_ms), values["family"], config,
            values["record_of"],
        )  # fmt: skip
    console().print(f"{problem.key()} on {target.info.name}: the first serves", table)


def _values(choice: Choice) -> dict[str, Any]:
    return {
        "rung": choice.source,
        "measured_ms": choice.ms,
        "predicted_ms": choice.predicted_ms,
        "family": choice.variant.family,
        "config": choice.variant.values(),
        "record_of": choice.source_key,
    }


def _text(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.4g}"
