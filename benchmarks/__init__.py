"""Benchmarks of this project and its peers: `python -m benchmarks --help` lists them.

Packages: `tasks` what is measured; `comparison` both sides in turns; `peers` what ours is compared
with; `report` rows, tables and charts; `models` whole networks against the CPU; `replays` searches
on measured tables; `choice` choices without a record; `targets` kernels compiled for other GPUs;
`commons` hostile records and requests; `costs` the time of host, database, service and spreading.
`data` has inputs, `results` has committed results.
"""
