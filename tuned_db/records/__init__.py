"""What a record is: its fields and line, the digests of its kernels, files of records.

No database is known here: the choice at dispatch reads records without SQLAlchemy. Its modules:

- a record: `record`, its `schema`, the `fields` that files from strangers may have, `digests`
- many: `exchange` (files of records), `shipped` (those of the package)
"""
