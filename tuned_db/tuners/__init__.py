"""Results of other tuners: kept beside the records, found by size, read from and written to files.

Its modules: `foreign` (the kernels), `adapters` (the formats).
"""
