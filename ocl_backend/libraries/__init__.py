"""Modules that make other libraries use the device; a program imports them."""
