"""What families of several kinds share: epilogues, packing, sums of planes, staging."""
