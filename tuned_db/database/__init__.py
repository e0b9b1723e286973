"""The database itself: where it lies, its tables, its schema's upgrades, and how it is opened.

Rows are read and written by `tuned_db.storage`. Its modules:

- tables: `models`, `schema`, `migrations`
- opening: `place`, `opening`, `errors`
"""
