"""The schema of a record's line, derived from the fields of `Record`; pydantic checks it.

Records that were checked before are read without this module, which takes 0.1 s to import.
"""

from __future__ import annotations

from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tuned_db.records import fields, record
from tuned_db.records.fields import Device, Parameters, strict, why_wrong
from tuned_db.records.record import IN_LINE, LATER, Record, RecordError, json_object

_KNOWN = get_type_hints(Record, vars(fields) | vars(record), include_extras=True)
HINTS: dict[str, Any] = _KNOWN | {"device": Device, "config": Parameters}
"""The type of each field of a line."""
_LINE: TypeAdapter[dict[str, Any]] = TypeAdapter(
    strict("Line", {name: HINTS[name] for name in IN_LINE})
)


def check(values: dict[str, Any]) -> None:
    """Check a record's values by the schema.

    Raises:
        RecordError: the schema does not take `values`; it names field, value and remedy.
    """
    if reason := why_wrong(_LINE, values):
        raise RecordError(reason)


def values_of(line: str) -> dict[str, Any]:
    """Return the checked values of a line, as an export file of any schema has it.

    Raises:
        RecordError: the line is no JSON object, or a field is missing, unknown or wrong.
    """
    try:
        return _LINE.validate_json(line)
    except ValidationError:  # or an older schema's, or wrong: then the reason is found out
        values = LATER | json_object(line)
        for name in ("samples", "peak"):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        check(values)
        return values
