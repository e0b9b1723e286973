"""Values worth trying of the depthwise families, a module each, and where to begin."""
