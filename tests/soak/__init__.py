"""Hours of use in minutes, in one process: shapes, threads, reloads, errors and interrupts."""
