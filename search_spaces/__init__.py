"""What is worth trying for each kernel family, and the search for the fastest variant on a device.

The caller passes in how to measure and store; only `session` touches a device or a database. Its
modules:

- values worth trying: `values`, `space`, `spaces`, and a module per family in `gemm`, `conv`,
  `depthwise`, `winograd`, `attention`, `packed`
- the search: `search`, `surrogate`, `study`
- one problem: `tune`, `contest`, `duel`, `hangs`, `epilogues`, `progress`, `timing`
- networks and many devices: `spread`, `scheduler`, `crews`, `orders`, `workloads`
- what uses them: `session`, `background`, `selftest`
"""
