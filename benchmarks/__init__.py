"""Benchmarks of this project and its peers: `python -m benchmarks --help` lists them.

Rooms: `tasks` what is measured; `comparison` both sides in turns; `peers` what ours is compared
with; `report` rows, tables and charts; `models` whole networks against the CPU; `replays` searches
on measured tables; `costs` what host, database, service and spreading take. `data` is read,
`results` is kept.
"""
