"""The results of a run: its rows as a file, as text and as a chart. Nothing is measured here."""
