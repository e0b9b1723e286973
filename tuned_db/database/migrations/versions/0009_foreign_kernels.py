"""Keep what other tuners measured of their own kernels, in a table apart."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the table and what finds a kernel in it."""
    op.create_table(
        "oclgen_foreign",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("tuner", sa.String(64), nullable=False),
        sa.Column("kernel", sa.String(400), nullable=False),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("device", sa.String(400), nullable=False),
        sa.Column("sizes", sa.JSON, nullable=False),
        sa.Column("words", sa.JSON, nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("samples", sa.JSON, nullable=False),
        sa.Column("ms", sa.Float),
        sa.Column("invalidity", sa.String(16), nullable=False),
        sa.Column("origin", sa.String(100), nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.Column("batch_id", sa.Integer),
        sa.UniqueConstraint("digest", name="oclgen_one_foreign"),
    )
    op.create_index("oclgen_by_kernel", "oclgen_foreign", ["kernel", "device"])
