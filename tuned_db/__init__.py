"""What was measured on which device, kept and shared, and the choice at dispatch that rests on it.

This package measures nothing and touches no device; `oclgen.measuring` and `search_spaces` do.
"""

from tuned_db.choice import Choice
from tuned_db.choose import Chooser, NoVariantError
from tuned_db.database import DatabaseError
from tuned_db.exchange import ImportFileError, read_records, write_records
from tuned_db.record import Record, RecordError
from tuned_db.store import DeviceStore, Merge, Store, open_existing, open_if_any, open_store

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
