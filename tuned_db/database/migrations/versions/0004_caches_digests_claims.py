"""Key tunings by the state of the caches; add digests, promotions, and trials made elsewhere.

Measurements with cold caches move to tunings of their own, and both parts get their winners.
"""

import sqlalchemy as sa
from alembic import op

from tuned_db.records.digests import UNDIGESTED, late_digest

revision = "0004"
down_revision = "0003"

TUNINGS = sa.table(
    "oclgen_tunings",
    *map(sa.column, ("id", "device_id", "generator", "problem", "cache", "trials", "winner_id")),
    sa.column("claimed"),
)
ROWS = sa.table(
    "oclgen_measurements",
    *map(sa.column, ("id", "tuning_id", "family", "config", "ms", "origin", "seed", "cache")),
    sa.column("promoted"),
    sa.column("digest"),
)


def upgrade() -> None:
    """Change the two tables, then the rows; the small table of tunings is copied by SQLite."""
    with op.batch_alter_table("oclgen_tunings") as tunings:
        tunings.add_column(sa.Column("cache", sa.String(4), nullable=False, server_default="warm"))
        tunings.add_column(sa.Column("claimed", sa.Integer, nullable=False, server_default="0"))
        tunings.drop_constraint("oclgen_one_tuning", type_="unique")
        tunings.create_unique_constraint(
            "oclgen_one_tuning", ["device_id", "generator", "problem", "cache"]
        )
    op.add_column("oclgen_measurements", sa.Column("digest", sa.String(16)))
    op.add_column(
        "oclgen_measurements",
        sa.Column("promoted", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    connection = op.get_bind()
    _mark_promoted(connection)
    for tuning in connection.execute(_with_cold_rows()).mappings().all():
        _split(connection, dict(tuning))
    _count_apart(connection)
    _crown_local(connection)
    _add_digests(connection)
    op.drop_column("oclgen_measurements", "cache")


def _mark_promoted(connection: sa.Connection) -> None:
    """Mark winners that were measured here and are not the fastest: a duel made them winners."""
    other = ROWS.alias("other")
    faster = sa.exists().where(
        other.c.tuning_id == ROWS.c.tuning_id,
        other.c.cache == ROWS.c.cache,
        other.c.origin == "",
        other.c.ms < ROWS.c.ms,
    )
    winners = sa.select(TUNINGS.c.winner_id).where(TUNINGS.c.winner_id.is_not(None))
    where = (ROWS.c.id.in_(winners), ROWS.c.origin == "", faster)
    connection.execute(sa.update(ROWS).where(*where).values(promoted=True))


def _with_cold_rows() -> sa.Select[tuple[object, ...]]:
    cold = sa.exists().where(ROWS.c.tuning_id == TUNINGS.c.id, ROWS.c.cache == "cold")
    return sa.select(TUNINGS).where(cold)


def _split(connection: sa.Connection, tuning: dict[str, object]) -> None:
    """Move a tuning's cold measurements to a tuning of their own."""
    asked = sa.select(ROWS).where(ROWS.c.tuning_id == tuning["id"]).order_by(ROWS.c.id)
    rows = connection.execute(asked).mappings().all()
    moved = _cold_ids([dict(row) for row in rows])
    values = {name: tuning[name] for name in ("device_id", "generator", "problem")}
    new = values | {"cache": "cold", "trials": 0, "claimed": 0}
    connection.execute(sa.insert(TUNINGS).values(**new))
    where = [TUNINGS.c[name] == value for name, value in (values | {"cache": "cold"}).items()]
    cold = connection.execute(sa.select(TUNINGS.c.id).where(*where)).scalar_one()
    connection.execute(sa.update(ROWS).where(ROWS.c.id.in_(moved)).values(tuning_id=cold))
    for key, is_moved in ((tuning["id"], False), (cold, True)):
        kept = tuning["winner_id"] if (tuning["winner_id"] in moved) == is_moved else None
        best = _best_of(key)
        winner = kept if kept is not None else connection.execute(best).scalar()
        known = {(r["family"], r["config"]) for r in rows if (r["id"] in moved) == is_moved}
        change = sa.update(TUNINGS).where(TUNINGS.c.id == key)
        connection.execute(change.values(winner_id=winner, trials=len(known)))
    if len(moved) == len(rows):
        connection.execute(sa.delete(TUNINGS).where(TUNINGS.c.id == tuning["id"]))


def _cold_ids(rows: list[dict[str, object]]) -> list[object]:
    """Return the ids of the cold measurements of a tuning.

    A duel's result was kept without its seed and as warm, whatever it was. Where its variant was
    measured before with cold caches and never with warm ones, it was cold.
    """
    warm = {
        (row["family"], row["config"])
        for row in rows
        if row["cache"] == "warm" and row["seed"] is not None
    }
    seen: set[tuple[object, object]] = set()
    moved = []
    for row in rows:
        variant = (row["family"], row["config"])
        of_duel = row["seed"] is None and row["origin"] == "" and variant in seen - warm
        if row["cache"] == "cold" or of_duel:
            moved.append(row["id"])
            seen.add(variant)
    return moved


def _best_of(tuning: object) -> sa.Select[tuple[object, ...]]:
    where = (ROWS.c.tuning_id == tuning, ROWS.c.ms > 0)
    return sa.select(ROWS.c.id).where(*where).order_by(ROWS.c.origin != "", ROWS.c.ms).limit(1)


def _count_apart(connection: sa.Connection) -> None:
    """Where claims came in, count what was tried here alone: their count was mixed in."""
    mine = ROWS.alias("mine")
    variants = sa.func.count(sa.distinct(mine.c.family + sa.literal(" ") + mine.c.config))
    count = (
        sa.select(variants)
        .where(mine.c.tuning_id == TUNINGS.c.id, mine.c.origin == "")
        .correlate(TUNINGS)
        .scalar_subquery()
    )
    claims = sa.exists().where(ROWS.c.tuning_id == TUNINGS.c.id, ROWS.c.origin != "")
    values = {"claimed": TUNINGS.c.trials, "trials": count}
    connection.execute(sa.update(TUNINGS).where(claims).values(**values))


def _crown_local(connection: sa.Connection) -> None:
    """Where a claim or a time of 0 ms won, crown the fastest of what was measured here."""
    mine = ROWS.alias("mine")
    here = (mine.c.tuning_id == TUNINGS.c.id, mine.c.origin == "", mine.c.ms > 0)
    best = (
        sa.select(mine.c.id)
        .where(*here)
        .order_by(mine.c.ms, mine.c.id)
        .limit(1)
        .correlate(TUNINGS)
        .scalar_subquery()
    )
    doubtful = sa.select(ROWS.c.id).where(sa.or_(ROWS.c.origin != "", ROWS.c.ms <= 0))
    where = (TUNINGS.c.winner_id.in_(doubtful), sa.exists().where(*here))
    connection.execute(sa.update(TUNINGS).where(*where).values(winner_id=best))


def _add_digests(connection: sa.Connection) -> None:
    """Name the winners' texts that are today's; 10 ms each are too long for all measurements."""
    asked = (
        sa.select(ROWS.c.id, TUNINGS.c.problem, ROWS.c.family, ROWS.c.config)
        .join(TUNINGS, TUNINGS.c.winner_id == ROWS.c.id)
        .where(TUNINGS.c.generator == UNDIGESTED)
    )
    for key, problem, family, config in connection.execute(asked).all():
        digest = late_digest(UNDIGESTED, problem, family, config)
        connection.execute(sa.update(ROWS).where(ROWS.c.id == key).values(digest=digest))
