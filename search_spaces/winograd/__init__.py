"""Values worth trying of the Winograd families, a module each, and where to begin."""
