"""Random programs of torch, drawn by a seed, run on a device and on the CPU, and compared."""
