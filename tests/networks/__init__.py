"""Networks of other libraries, drawn by seed at toy size and compared with the CPU."""
