"""What people look at: pages of rows, comparisons, charts, the report; `templates` are its HTML.

`tuned_db.service` shows it over HTTP. Its modules:

- rows: `browse`, `across`, `failures`, `compare`
- what they mean: `analysis`, `titles`
- drawn and written: `charts`, `plots`, `html`, `report`, `templates`
"""
