"""Files that hold more than winners: self-tests, data sets, tables for models of times.

Files of records are `tuned_db.records.exchange`. Its modules:

- what is written and read: `selftest`, `dataset`, `table`
- what they share: `measured` (full sets of measurements), `personal` (what must not travel)
"""
