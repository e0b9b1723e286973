"""How well variants are chosen for problems without a record, judged by measured tables."""
