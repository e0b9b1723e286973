"""Values worth trying of the convolution families, a module each, and where to begin."""
