"""Keep batches with their time, which plans were checked, origins in quarantine, and roles.

What came before has no batch. Tokens that are there may go on writing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add tables, and columns in place."""
    op.add_column("oclgen_measurements", sa.Column("batch_id", sa.Integer))
    role = sa.Column("role", sa.String(16), nullable=False, server_default="contributor")
    op.add_column("oclgen_tokens", role)
    op.add_column("oclgen_tokens", sa.Column("expires", sa.String(20)))
    op.add_column("oclgen_tokens", sa.Column("used", sa.String(20)))
    op.add_column("oclgen_tokens", sa.Column("daily", sa.Integer))
    op.create_table(
        "oclgen_batches",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("origin", sa.String(100), nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("arrived", sa.String(20), nullable=False),
        sa.Column("records", sa.Integer, nullable=False),
    )
    op.create_table(
        "oclgen_checks",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("device_id", sa.Integer, sa.ForeignKey("oclgen_devices.id"), nullable=False),
        sa.Column("digest", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.UniqueConstraint("device_id", "digest", name="oclgen_one_check"),
    )
    op.create_table(
        "oclgen_quarantine",
        sa.Column("origin", sa.String(100), primary_key=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
    )
