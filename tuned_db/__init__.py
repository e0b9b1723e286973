"""Stores what was measured on which device, shares it, and chooses variants at dispatch from it.

This package measures nothing and touches no device; `oclgen.measuring` and `search_spaces` do. Its
names are imported when they are used, because a choice does not need SQLAlchemy. Its modules:

- the database: `database`, `place`, `models`, `schema`, `migrations`, `errors`
- reading and writing rows: `store`, `rows`, `device_rows`, `many`, `arrivals`, `merging`, `upkeep`,
  `retention`
- the choice at dispatch: `choose`, `choice`, `evidence`, `pools`, `nearest`, `digests`, `shipped`,
  `raced`; `recalled` and `kept` store it for later processes
- trust: `trust`, `plausible`, `checks`, `verify`, `batches`, `signatures`, `consensus`, `tokens`
- files: `record`, `record_schema`, `exchange`, `measured`, `check_file`, `dataset`, `table`,
  `fields`, `personal`
- other tuners: `foreign`, `adapters`
- views: `browse`, `across`, `failures`, `compare`, `analysis`, `titles`, `charts`, `plots`,
  `report`, `html`
- over HTTP: `service`
"""

from typing import TYPE_CHECKING

from oclgen.lazy import lazily

if TYPE_CHECKING:
    from tuned_db.choice import Choice
    from tuned_db.choose import Chooser, NoVariantError
    from tuned_db.errors import DatabaseError
    from tuned_db.exchange import ImportFileError, read_records, write_records
    from tuned_db.merging import Merge
    from tuned_db.record import Record, RecordError
    from tuned_db.store import DeviceStore, Store, open_existing, open_if_any, open_store

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
    "tuned_db.choice": ("Choice",),
    "tuned_db.choose": ("Chooser", "NoVariantError"),
    "tuned_db.errors": ("DatabaseError",),
    "tuned_db.exchange": ("ImportFileError", "read_records", "write_records"),
    "tuned_db.merging": ("Merge",),
    "tuned_db.record": ("Record", "RecordError"),
    "tuned_db.store": ("DeviceStore", "Store", "open_existing", "open_if_any", "open_store"),
}

__getattr__ = lazily(
    __name__, {name: module for module, names in _MODULES.items() for name in names}
)
