"""The choice at dispatch: which variant serves a problem, and why; it is made in memory.

A process that only chooses loads neither SQLAlchemy nor pydantic. Its modules:

- the ladder of rungs: `chooser`, `choice`, `option`
- what it climbs on: `evidence`, `pools`, `nearest`, `plausible`
- winners of races beside a program: `raced`
- what later processes find again: `remembered_choices`, `remembered_winners`
"""
