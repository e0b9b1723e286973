"""Add where measurements came from, what devices can do at most, and tokens for writing."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add columns in place: no table is copied, so that a large file is upgraded in no time."""
    op.add_column("oclgen_devices", sa.Column("peak_gflops", sa.Float))
    op.add_column("oclgen_devices", sa.Column("peak_gbytes", sa.Float))
    op.add_column(
        "oclgen_measurements",
        sa.Column("origin", sa.String(100), nullable=False, server_default=""),
    )
    op.create_index("oclgen_by_device", "oclgen_tunings", ["device_id", "id"])
    op.create_table(
        "oclgen_tokens",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.UniqueConstraint("name", name="oclgen_one_token"),
        sa.UniqueConstraint("digest", name="oclgen_one_digest"),
    )
