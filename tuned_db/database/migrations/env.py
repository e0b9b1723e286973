"""Runs migrations on the connection of `tuned_db.database.schema`; not for alembic's CLI."""

from alembic import context

from tuned_db.database.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
    render_as_batch=True,
)
context.run_migrations()
