"""Keep whose signatures are trusted."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "oclgen_keys",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("created", sa.String(20), nullable=False),
        sa.UniqueConstraint("key", name="oclgen_one_key"),
    )
