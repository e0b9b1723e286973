"""Values worth trying of the GEMM families, a module each, and where to begin."""
