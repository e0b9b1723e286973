"""Keep peaks of dtypes other than fp32, and find a problem over devices without reading all.

Devices that are known get their peaks when they next tune.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns in place, and an index."""
    for name in ("peaks", "claimed_peaks"):
        op.add_column("oclgen_devices", sa.Column(name, sa.JSON(none_as_null=True)))
    op.create_index("oclgen_by_problem", "oclgen_tunings", ["problem"])
