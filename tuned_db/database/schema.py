"""The schema's revision: read from a database, and brought up to date by the migrations.

The tables themselves are in `models`; a database is opened by `opening`.
"""

from __future__ import annotations

from importlib import resources

from sqlalchemy import Connection, func, inspect, select, text

MIGRATIONS = resources.files("tuned_db.database").joinpath("migrations")
VERSION_TABLE = "oclgen_schema"
MIGRATION_LOCK = 0x6F636C67
"""Key of an advisory lock that no other program should use; it spells "oclg"."""


class SchemaError(RuntimeError):
    """A schema this version cannot use; the message completes "database file x ..."."""


def revisions() -> list[str]:
    """Return every revision this version of oclgen knows, oldest first."""
    files = MIGRATIONS.joinpath("versions").iterdir()
    return sorted(file.name[:4] for file in files if file.name.endswith(".py"))


def read_revision(connection: Connection) -> str | None:
    """Return the schema's revision, None if the database is empty.

    Raises:
        SchemaError: it belongs to something else, or to a newer version of oclgen.
    """
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE not in tables:
        if tables and connection.dialect.name == "sqlite":
            held = ", ".join(sorted(tables)[:5])
            raise SchemaError(f"belongs to something else: it holds the tables {held}")
        return None
    revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    known = revisions()
    if revision is not None and revision not in known:
        raise SchemaError(
            f"has schema {revision}, newer than {known[-1]}, the newest that this version of "
            "oclgen knows; update oclgen"
        )
    return revision


def is_current(connection: Connection) -> bool:
    """Say whether nothing needs to be migrated."""
    return read_revision(connection) == revisions()[-1]


def migrate(connection: Connection) -> None:
    """Bring the schema up to date inside the connection's transaction; twice does no harm."""
    if connection.dialect.name == "postgresql":
        # two that make the tables at once would both find none; SQLite has locked the file already
        connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
    if is_current(connection):
        return
    # alembic takes a third of a second to import, and is needed once in a database's life
    from alembic import command
    from alembic.config import Config

    with resources.as_file(MIGRATIONS) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes.update(connection=connection, version_table=VERSION_TABLE)
        command.upgrade(config, "head")
