"""How well variants are chosen for problems without a record: measured tables, what they tell."""
