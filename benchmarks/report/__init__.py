"""What a run found: its rows as a file, as text and as a chart. Nothing is measured here."""
