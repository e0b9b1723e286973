"""`oclgen db verify`: measure here what came from elsewhere and would serve here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .console import console
from .options import db_option, device_option

if TYPE_CHECKING:
    from tuned_db.verify import Verdict


@click.command()
@device_option
@click.option("--limit", default=0, help="Most records to check; 0 for all.", show_default=True)
@db_option
@click.pass_context
def verify(ctx: click.Context, device: str, limit: int, where: str | None) -> None:
    """Check imported and pulled records on a device of this machine, and time them.

    Only what would serve on the device is measured, while no other process measures on it. A record
    that is wrong or does not build loses its place to the next best. Ctrl-C keeps what is done.
    Exit code 1 if a record failed.
    """
    from search_spaces.session import Session
    from tuned_db import open_existing

    out = console()
    session = Session(device, open_existing(where), say=out.print)
    claims = session.chooser.unverified()[: limit or None]
    out.print(
        f"{session.store.name}: {len(claims)} unverified records would serve on "
        f"{session.device.name}"
    )
    right = wrong = 0
    if claims:
        with session:
            for verdict in session.verify(claims):
                right, wrong = right + verdict.measurement.ok, wrong + (not verdict.measurement.ok)
                out.print(f"{right + wrong}/{len(claims)} {_sentence(verdict)}")
        out.print(f"{right} verified, {wrong} failed")
    if wrong:
        ctx.exit(1)


def _sentence(verdict: Verdict) -> str:
    choice, measurement = verdict.choice, verdict.measurement
    what = f"{choice.problem.key()} {choice.variant.family} ({choice.rung})"
    if not measurement.ok:
        return f"{what}: {measurement.invalidity}: {measurement.reason[:200]}"
    claimed = "" if choice.ms is None else f", claimed {choice.ms:.4g} ms"
    return f"{what}: {measurement.ms:.4g} ms{claimed}"
