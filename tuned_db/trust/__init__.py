"""Whom and what to believe: claims from elsewhere, those who send them, and those who agree.

Its modules:

- claims: `verify` measures them here, `withdrawn` takes them back, `consensus` counts who agrees
- people: `signatures` of contributors, `tokens` of a service's users
"""
