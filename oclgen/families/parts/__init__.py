"""What families of several kinds share: epilogues, packing, squares that turn, sums, staging."""
