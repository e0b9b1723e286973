"""Many values as one parameter of a statement to PostgreSQL.

With a parameter for each value, a statement has thousands. The driver splits them and the server
parses them anew each time, which is most of the time of 500 measurements. SQLite is not slowed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Integer,
    Text,
    any_,
    column,
    func,
    insert,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import InstrumentedAttribute

from tuned_db.database.models import Base


def is_among(
    connection: Connection, attribute: InstrumentedAttribute[Any], values: Collection[Any]
) -> ColumnElement[bool]:
    """Return the condition that a column has one of some values.

    Args:
        connection: to the database that is asked.
        attribute: the column, of a model.
        values: of the column's type, none of them None.
    """
    if connection.dialect.name != "postgresql":
        return attribute.in_(values)
    given = literal(list(values), ARRAY(attribute.type))
    return attribute == any_(given)


def add_rows(
    connection: Connection, model: type[Base], rows: Sequence[dict[str, Any]]
) -> list[int]:
    """Insert rows; return the key of each.

    Args:
        connection: in a transaction that writes.
        model: whose table they are added to; its key is `id`.
        rows: at least one, with values of the same columns.
    """
    table = model.__table__
    key = table.c["id"]
    if connection.dialect.name != "postgresql":
        adding = insert(model).returning(key, sort_by_parameter_order=True)
        return list(connection.execute(adding, rows).scalars())
    sent = [column(name, table.c[name].type) for name in rows[0]]
    numbered = [row | {"place": place} for place, row in enumerate(rows)]
    text = literal(json.dumps(numbered, allow_nan=False), Text)
    given = func.json_to_recordset(text.cast(JSON)).table_valued(*sent, column("place", Integer))
    given = given.render_derived(with_types=True)
    ordered = select(*(given.c[name] for name in rows[0])).order_by(given.c.place)
    # keys are counted up in the order of the rows, whatever the order in which they come back
    added = insert(model).from_select(list(rows[0]), ordered, include_defaults=False)
    return sorted(connection.execute(added.returning(key)).scalars())
