"""Create devices, tunings and measurements; `tuned_db.database.models` says what they hold."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the three tables."""
    op.create_table(
        "oclgen_devices",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(400), nullable=False),
        sa.Column("vendor", sa.String(400), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("architecture", sa.String(400), nullable=False),
        sa.Column("runtime", sa.String(400), nullable=False),
        sa.Column("runtime_version", sa.String(400), nullable=False),
        sa.Column("driver_version", sa.String(400), nullable=False),
        sa.Column("compute_units", sa.Integer, nullable=False),
        sa.UniqueConstraint(
            "name", "vendor", "kind", "architecture", "runtime", "runtime_version",
            "driver_version", "compute_units", name="oclgen_one_device",
        ),
    )  # fmt: skip
    op.create_table(
        "oclgen_tunings",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("device_id", sa.Integer, sa.ForeignKey("oclgen_devices.id"), nullable=False),
        sa.Column("generator", sa.String(400), nullable=False),
        sa.Column("problem", sa.String(400), nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("winner_id", sa.Integer),
        sa.UniqueConstraint("device_id", "generator", "problem", name="oclgen_one_tuning"),
    )
    op.create_table(
        "oclgen_measurements",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("tuning_id", sa.Integer, sa.ForeignKey("oclgen_tunings.id"), nullable=False),
        sa.Column("family", sa.String(400), nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("samples", sa.JSON, nullable=False),
        sa.Column("ms", sa.Float),
        sa.Column("spread", sa.Float),
        sa.Column("error", sa.Float),
        sa.Column("invalidity", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("version", sa.String(400), nullable=False),
    )
    op.create_index("oclgen_by_tuning", "oclgen_measurements", ["tuning_id", "family"])
