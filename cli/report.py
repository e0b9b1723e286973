"""`oclgen report`: a page and plots of what was tuned, how fast it is, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import db_option

if TYPE_CHECKING:
    from oclgen.limits import DeviceInfo
    from tuned_db.views.report import Section


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--device", default="", help="Only devices with this in name, runtime or driver.")
@db_option
def report(folder: Path, device: str, where: str | None) -> None:
    """Write report.html, which needs nothing else, and its plots as PNG into FOLDER."""
    from tuned_db import open_existing
    from tuned_db.views.report import sections, to_html

    store = open_existing(where)
    found = sections(store, _wanted, device)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.html").write_text(to_html(found), encoding="utf-8")
        plots = _write_plots(folder, found)
    except OSError as error:
        raise click.ClickException(f"cannot write {folder}: {error.strerror}") from error
    click.echo(f"{folder / 'report.html'}: {len(found)} devices of {store.name}; {plots}")


def _wanted(info: DeviceInfo) -> list[str]:
    from oclgen.limits import Limits
    from search_spaces.workloads import default_problems

    return [problem.key() for problem in default_problems(Limits(kind=info.kind))]


def _write_plots(folder: Path, found: list[Section]) -> str:
    """Write the charts and say how many there are, or what is missing for them."""
    from tuned_db.views.charts import REMEDY, can_draw, draw

    if not can_draw():
        return f"no plots. {REMEDY}"
    count = 0
    for number, section in enumerate(found, start=1):
        for name, chart in section.charts.items():
            (folder / f"{name}_{number}.png").write_bytes(draw(chart, "png"))
            count += 1
    return f"{count} plots as PNG"
