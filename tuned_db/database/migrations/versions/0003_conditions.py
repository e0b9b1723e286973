"""Add how times came about: the inputs' seed, warm or cold caches, clocks and temperatures."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add columns in place: no table is copied, so that a large file is upgraded in no time."""
    op.add_column("oclgen_measurements", sa.Column("seed", sa.Integer))
    op.add_column(
        "oclgen_measurements",
        sa.Column("cache", sa.String(4), nullable=False, server_default="warm"),
    )
    op.add_column("oclgen_measurements", sa.Column("conditions", sa.JSON))
