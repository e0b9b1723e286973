"""What operators are made of: generators of OpenCL C, prepared launches. It registers nothing."""
