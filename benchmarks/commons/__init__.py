"""Tests of what hostile records and requests could do to a database: one module a topic."""
