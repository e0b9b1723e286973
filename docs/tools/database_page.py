"""MkDocs hook that fills the page on the database from code: tables, fields, an example record.

A page asks for a part by a line such as `{{ tables }}`; parts are made from the tables' models,
from the `Record` class and from a shipped file, so that none can contradict the code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tuned_db/shipped/intel_cpu.jsonl"
SHOWN_SAMPLES = 3
"""Samples of the example record that are shown."""


def tables() -> str:
    """Return all tables with columns and foreign keys as a mermaid diagram."""
    from tuned_db.database.models import Base

    lines = ["```mermaid", "erDiagram"]
    for table in Base.metadata.sorted_tables:
        lines.append(f"    {table.name} {{")
        for column in table.columns:
            kind = str(column.type).split("(")[0].lower()
            marks = [
                *(["PK"] if column.primary_key else []),
                *(["FK"] if column.foreign_keys else []),
            ]
            note = ' "may be null"' if column.nullable else ""
            lines.append(f"        {kind} {column.name} {', '.join(marks)}{note}".rstrip())
        lines.append("    }")
        lines += [
            f"    {key.column.table.name} ||--o{{ {table.name} : {key.parent.name}"
            for key in table.foreign_keys
        ]
    return "\n".join([*lines, "```"])


def record_fields() -> str:
    """Return the fields of a record with their types as a table."""
    from tuned_db.records.record import Record

    rows = ["| field | type | must be there |", "|---|---|---|"]
    for one in fields(Record):
        needed = one.default is MISSING and one.default_factory is MISSING
        rows.append(f"| `{one.name}` | `{one.type}` | {'yes' if needed else 'no'} |")
    return "\n".join(rows).replace(" | None`", " or None`")


def example() -> str:
    """Return the head of a shipped file and its first complete record, indented, samples cut."""
    header, *lines = EXAMPLE.read_text().splitlines()
    records = [json.loads(line) for line in lines]
    record = next((one for one in records if one.get("digest")), records[0])
    record["samples"] = record["samples"][:SHOWN_SAMPLES]
    return f"```json\n{header}\n{json.dumps(record, indent=1, ensure_ascii=False)}\n```"


PARTS: dict[str, Callable[[], str]] = {
    "{{ tables }}": tables,
    "{{ record_fields }}": record_fields,
    "{{ example }}": example,
}
"""What makes each part, by the line that asks for it."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace each line that asks for a part by that part."""
    for mark, part in PARTS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, part())
    return markdown
