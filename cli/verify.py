"""`oclgen db verify`: measures records from elsewhere that would serve here."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from .console import console
from .options import db_option, device_option

if TYPE_CHECKING:
    from tuned_db.trust.verify import Verdict


SLOWER_CODE = 3
"""Exit code where claims were slower than they say, and none was worse."""


@click.command()
@device_option
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=0,
    help="Most records to check; 0 for all.",
    show_default=True,
)
@click.option(
    "--quarantine",
    "distrust",
    is_flag=True,
    help="Believe no further claim of an origin of which one was wrong or slower than claimed.",
)
@db_option
@click.pass_context
def verify(ctx: click.Context, device: str, limit: int, distrust: bool, where: str | None) -> None:
    """Check imported and pulled records on a device of this machine, and time them.

    Only what would serve on the device is measured, while no other process measures on it. A record
    that is wrong or does not build loses its place to the next best; one that takes over 1.5 times
    what it claims is measured against what would serve without it. Ctrl-C keeps what is done. Exit
    code 1 if a record was wrong or failed, else 3 if one was slower than claimed.
    """
    from search_spaces.session import Session
    from tuned_db import open_existing
    from tuned_db.trust.withdrawn import quarantine

    out = console()
    session = Session(device, open_existing(where), say=out.print)
    claims = session.chooser.unverified()[: limit or None]
    out.print(
        f"{session.store.name}: {len(claims)} unverified records would serve on "
        f"{session.device.name}"
    )
    if not claims:
        return
    found: list[Verdict] = []
    with session:
        for verdict in session.verify(claims):
            found.append(verdict)
            out.print(f"{verdict.kind}: {_sentence(verdict)}")
    counts = Counter(verdict.kind for verdict in found)
    bad = counts["wrong"] + counts["failed"]
    slower = counts["slower"]
    out.print(f"{counts['verified']} verified, {slower} slower than claimed, {bad} failed")
    if distrust:
        for origin in {one.choice.origin for one in found if one.kind in ("wrong", "slower")}:
            lost = quarantine(session.store, origin, "oclgen db verify found a false claim")
            out.print(f"{origin} is in quarantine; {lost} of its claims lost their place")
    if bad or slower:
        ctx.exit(1 if bad else SLOWER_CODE)


def _sentence(verdict: Verdict) -> str:
    choice, measurement = verdict.choice, verdict.measurement
    what = f"{choice.problem.key()} {choice.variant.family} ({choice.rung})"
    if not measurement.ok:
        return f"{what}: {measurement.invalidity}: {measurement.reason[:200]}"
    claimed = "" if choice.ms is None else f", claimed {choice.ms:.4g} ms"
    return f"{what}: {measurement.ms:.4g} ms{claimed}"
