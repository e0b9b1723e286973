"""Keep what a device allows: what a model of times is fitted to, beside its measurements.

Devices that are known get it when they next tune.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column in place."""
    op.add_column("oclgen_devices", sa.Column("limits", sa.JSON(none_as_null=True)))
