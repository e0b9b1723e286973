"""How well variants are chosen for what nobody tuned: measured tables, and what they tell."""
