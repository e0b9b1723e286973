"""Keep peaks that records from elsewhere give apart from those that were measured here.

Where a device has claims, its peak may have come with one: it becomes a claim, and the next tuning
measures the device's own.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

PEAKS = {"claimed_gflops": "peak_gflops", "claimed_gbytes": "peak_gbytes"}
DEVICES = sa.table("oclgen_devices", *map(sa.column, ("id", *PEAKS, *PEAKS.values())))
TUNINGS = sa.table("oclgen_tunings", *map(sa.column, ("id", "device_id")))
ROWS = sa.table("oclgen_measurements", *map(sa.column, ("tuning_id", "origin")))


def upgrade() -> None:
    """Add columns in place, then move the peaks that may be claims."""
    for claimed in PEAKS:
        op.add_column("oclgen_devices", sa.Column(claimed, sa.Float))
    with_claims = (
        sa.select(TUNINGS.c.device_id)
        .join(ROWS, ROWS.c.tuning_id == TUNINGS.c.id)
        .where(ROWS.c.origin != "")
    )
    moved = {claimed: DEVICES.c[peak] for claimed, peak in PEAKS.items()}
    cleared = dict.fromkeys(PEAKS.values(), sa.null())
    op.execute(sa.update(DEVICES).where(DEVICES.c.id.in_(with_claims)).values(**moved, **cleared))
