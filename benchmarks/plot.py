"""Draws rates over the size of square products from the JSON that `gemm.py --json` wrote.

It measures nothing.

    python benchmarks/plot.py benchmarks/results/nvidia_h200_gemm.json docs/gemm_nvidia_h200.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from results import Result, Row, load

from oclgen.keys import parse_key
from oclgen.problem import DTYPES, GemmProblem


def squares(rows: tuple[Row, ...], dtype: str) -> list[tuple[int, Row]]:
    """Return the square, untransposed, plain products of a dtype, by size."""
    found = {}
    for row in rows:
        problem = parse_key(row.problem)
        if problem == GemmProblem(*[getattr(problem, "m", 1)] * 3, dtype=dtype):
            found[problem.m] = row
    return sorted(found.items())


def draw(result: Result, path: Path) -> None:
    """Draw one panel per dtype: ours and the peer's TFLOP/s, and the measured fp32 peak."""
    series = {dtype: squares(result.rows, dtype) for dtype in DTYPES}
    series = {dtype: points for dtype, points in series.items() if points}
    figure, panels = plt.subplots(
        1, len(series), figsize=(3.2 * len(series), 3), squeeze=False, layout="constrained"
    )
    for panel, (dtype, points) in zip(panels[0], series.items(), strict=True):
        sizes = [size for size, _ in points]
        panel.plot(sizes, [row.gflops / 1e3 for _, row in points], "o-", label="ours")
        panel.plot(sizes, [row.peer_gflops / 1e3 for _, row in points], "s--", label="peer")
        if dtype == "fp32":
            panel.axhline(result.peak_gflops / 1e3, color="0.6", label="measured peak")
        panel.set(title=dtype, xlabel="m = n = k", xscale="log", xticks=sizes, xticklabels=sizes)
        panel.set_ylim(bottom=0)
        panel.minorticks_off()
        panel.legend(frameon=False)
    panels[0][0].set_ylabel("TFLOP/s")
    figure.suptitle(f"{result.device.name} against {result.peer}", fontsize="medium")
    figure.savefig(path)


if __name__ == "__main__":
    draw(load(Path(sys.argv[1])), Path(sys.argv[2]))
