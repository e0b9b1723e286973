"""Measures this device against its peers in one run: products, convolutions, networks, operators.

    python benchmarks/all.py --device 0 --json benchmarks/results/NAME.json \
        --markdown docs/results_NAME.md --plot docs/results_NAME.svg
    python benchmarks/all.py --only gemm,resnet_3x3 --trials 30 --time-budget 200

Each row has the median times of both sides, taken in turns, what bounds it by the rates that were
measured first, and how much of that is reached. Products and convolutions are timed on the device,
torch's by CUDA's events or the host's clock, networks and operators by the host's. Without
`--trials` ours is what a user gets: the variant that dispatch takes from the database and the
records shipped with the package. What fails is a row with a reason; the file is whole after every
row, and a later run with the same file replaces the rows that it measures.
"""

from __future__ import annotations

if __name__ == "__main__":
    from suite import main  # the sides' processes import this file, and need none of that

    main()
