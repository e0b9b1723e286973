"""Stores what was measured on which device, shares it, and chooses variants at dispatch from it.

This package measures nothing and touches no device; `oclgen.measuring` and `search_spaces` do. Its
names are imported when they are used, because a choice does not need SQLAlchemy. It
is in rooms, each of which imports only from those before it in this list. Its modules:

- `records`: what a record is, the digests of its kernels, files of records, and those of the
  package, which lie in `shipped`
- `database`: tables, schema, migrations, opening
- `storage`: rows, read and written; what opens a database for others
- `choosing`: the choice at dispatch, and what later processes find again
- `trust`: claims, who sends them, who agrees
- `files`: self-tests, data sets, tables for models of times
- `tuners`: results of other tuners
- `views`: pages, comparisons, charts, the report
- `service`: all of this over HTTP
"""

from typing import TYPE_CHECKING

from oclgen.lazy import lazily

if TYPE_CHECKING:
    from tuned_db.choosing.choice import Choice
    from tuned_db.choosing.chooser import Chooser, NoVariantError
    from tuned_db.database.errors import DatabaseError
    from tuned_db.records.exchange import ImportFileError, read_records, write_records
    from tuned_db.records.record import Record, RecordError
    from tuned_db.storage.merging import Merge
    from tuned_db.storage.store import DeviceStore, Store, open_existing, open_if_any, open_store

__all__ = [
    "Choice",
    "Chooser",
    "DatabaseError",
    "DeviceStore",
    "ImportFileError",
    "Merge",
    "NoVariantError",
    "Record",
    "RecordError",
    "Store",
    "open_existing",
    "open_if_any",
    "open_store",
    "read_records",
    "write_records",
]

_MODULES = {
    "tuned_db.choosing.choice": ("Choice",),
    "tuned_db.choosing.chooser": ("Chooser", "NoVariantError"),
    "tuned_db.database.errors": ("DatabaseError",),
    "tuned_db.records.exchange": ("ImportFileError", "read_records", "write_records"),
    "tuned_db.records.record": ("Record", "RecordError"),
    "tuned_db.storage.merging": ("Merge",),
    "tuned_db.storage.store": (
        *("DeviceStore", "Store"),
        *("open_existing", "open_if_any", "open_store"),
    ),
}

__getattr__ = lazily(
    __name__, {name: module for module, names in _MODULES.items() for name in names}
)
