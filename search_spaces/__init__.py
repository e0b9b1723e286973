"""What is worth trying for each kernel family, and the search for the fastest of it on a device.

Measuring and storing are handed in; this package touches neither a device nor a database.
"""
