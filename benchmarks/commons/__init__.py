"""What strangers' records and requests could do to a database, tried again: one module a topic."""
