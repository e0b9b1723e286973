"""`oclgen check`: a self-test of a device; it prints a verdict and writes one file to attach."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from .console import console
from .options import json_option

COLOURS = {"ok": "green", "skipped": "yellow", "fail": "red"}
WORDS = {"ok": "right", "skipped": "skipped", "fail": "failed"}
SHORTEST_S = 10


@click.command()
@click.option("--device", "index", default=0, show_default=True, metavar="INDEX", type=int)
@click.option(
    "--seconds",
    default=300,
    show_default=True,
    type=click.IntRange(SHORTEST_S),
    help="The whole test ends by then.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: oclgen-check-DEVICE.json here.",
)
@json_option
@click.pass_context
def check(ctx: click.Context, index: int, seconds: int, output: Path | None, as_json: bool) -> None:
    """Test a device: limits, instructions, every family, torch's operators, a short tuning.

    Results are compared with float64. Every step runs in a process that may crash or hang; that is
    a line of the verdict then. One file is written, without names and paths, that can be attached
    to an issue and that `oclgen db import` and `oclgen db contribute` take. Your own database is
    not touched. Exit code 1 if anything failed.
    """
    from oclgen.limits import DeviceInfo
    from oclgen.profiles.writing import name_of
    from search_spaces.selftest import steps
    from tuned_db import open_store
    from tuned_db.files.selftest import to_bytes

    began = time.monotonic()
    facts: dict[str, Any] = {}
    found: list[Any] = []
    out = console(aside=True)
    with TemporaryDirectory(prefix="oclgen-check-") as folder, out.status("starting") as status:
        where = str(Path(folder) / "check.sqlite")
        store = open_store(where)
        for finding in steps(index, where, seconds, facts.__setitem__):
            found.append(finding)
            status.update(f"{finding.step}: {finding.what}")
        if {"devices", "device", "limits"} <= facts.keys():
            content = to_bytes(store, facts, found, time.monotonic() - began)
    if as_json:
        click.echo(json.dumps([one._asdict() for one in found], indent=1))
    else:
        console().print(_table(found))
    if "limits" not in facts:
        raise click.ClickException(
            "no device could be tested, so no file is written: `oclgen devices` lists what there "
            "is, `oclgen doctor` what was tried. Where asking for instructions ended the process, "
            "`oclgen --device-profile unknown check` does not ask"
        )
    path = output or Path(f"oclgen-check-{name_of(DeviceInfo(**facts['device']))}.json")
    try:
        path.write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
    failed = sum(one.verdict == "fail" for one in found)
    told = f"{failed} of {len(found)} checks failed" if failed else "all that could run is right"
    click.echo(f"{told}; written to {path}, {len(content) // 1000} kB", err=as_json)
    if failed:
        ctx.exit(1)


def _table(found: list[Any]) -> Table:
    """Return a row per step that counts, with the facts of short steps, and one per failure."""
    table = Table("step", "", "what", "found", show_lines=False)
    for step in dict.fromkeys(one.step for one in found):
        mine = [one for one in found if one.step == step]
        counts = Counter(one.verdict for one in mine)
        if step in ("families", "operators") and len(mine) > 1:
            said = ", ".join(f"{counts[v]} {WORDS[v]}" for v in WORDS if counts[v])
            worst = "fail" if counts["fail"] else "ok"
            table.add_row(step, Text(worst, COLOURS[worst]), said, "")
            mine = [one for one in mine if one.verdict == "fail"]
        for one in mine:
            found_short = " ".join(one.found.split())[:300]
            table.add_row(step, Text(one.verdict, COLOURS[one.verdict]), one.what, found_short)
    return table
