"""Modules that tell other libraries of the device, imported by those who use the library."""
