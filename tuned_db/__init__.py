"""What was measured on which device, kept and shared, and the choice at dispatch that rests on it.

This package measures nothing and touches no device; `oclgen.measure` and `search_spaces` do.
"""

from tuned_db.choose import Choice, Chooser, NoVariantError
from tuned_db.record import Record, RecordError

__all__ = ["Choice", "Chooser", "NoVariantError", "Record", "RecordError"]
