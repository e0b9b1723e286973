"""Calls that are recalled and launches that are held back, so that several become one kernel."""
