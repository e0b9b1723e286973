"""Reads and writes the rows of a database; `store` is the door to it.

Its modules:

- statements inside a caller's transaction: `rows`, `device_rows`, `many`
- what comes from elsewhere: `batches`, `arrivals`, `merging`
- what was checked before it serves: `quick_checks`
- the door: `store`
- housekeeping, by what `store` offers: `upkeep`, `retention`
"""
