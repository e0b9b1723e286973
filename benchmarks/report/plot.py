"""Draws the part of the measured peak that products reach over their size; it measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report.rows import Result, Row
from oclgen.keys import parse_key
from oclgen.problem import DTYPES, GemmProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL = (2.6, 2.6)
"""Inches of a panel."""
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.bottom": False,
}
"""Text as text, the same file for the same rows, and few lines: the points mark the sizes."""
TICKS = 4
"""Steps of the vertical axis, at most."""
MARKERS = ("s", "^", "v")


def squares(rows: tuple[Row, ...], dtype: str) -> list[tuple[int, Row]]:
    """Return the square, untransposed, plain products of a dtype, by size."""
    found = {}
    for row in rows:
        if row.kind != "gemm" or row.dtype != dtype or row.ours_ms is None:
            continue
        problem = parse_key(f"gemm:{row.key}")
        assert isinstance(problem, GemmProblem)
        if problem == GemmProblem(problem.m, problem.m, problem.m, dtype):
            found[problem.m] = row
    return sorted(found.items())


def draw(result: Result, path: Path) -> None:
    """Draw one panel per dtype: ours and the peers, as parts of the rate that bounds the dtype.

    Without square products nothing is drawn.
    """
    series = {dtype: squares(result.rows, dtype) for dtype in DTYPES}
    series = {dtype: points for dtype, points in series.items() if points}
    if not series:
        return
    import matplotlib as mpl  # 1 s, for what draws alone
    from matplotlib import pyplot as plt

    with mpl.rc_context(SETTINGS):
        size = (PANEL[0] * len(series), PANEL[1])
        figure, panels = plt.subplots(
            1, len(series), figsize=size, squeeze=False, layout="constrained"
        )
        for panel, (dtype, points) in zip(panels[0], series.items(), strict=True):
            _panel(panel, result, dtype, points)
        panels[0][0].set_ylabel("of the measured rate, %")
        panels[0][0].legend(frameon=False)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _panel(panel: Axes, result: Result, dtype: str, points: list[tuple[int, Row]]) -> None:
    rate = result.roofs.matrix.get(dtype, result.roofs.gflops)
    sizes = [size for size, _ in points]
    panel.plot(sizes, [_share(row, row.ours_ms, rate) for _, row in points], "o-", label="ours")
    peers = list(dict.fromkeys(peer for _, row in points for peer in row.peers))
    for peer, marker in zip(peers, MARKERS, strict=False):
        known = [(size, row) for size, row in points if peer in row.peers]
        shares = [_share(row, row.peers[peer], rate) for _, row in known]
        panel.plot([size for size, _ in known], shares, f"{marker}--", label=peer)
    title = f"{dtype}, 100 % = {rate / 1e3:.3g} TFLOP/s"
    panel.set(title=title, xlabel="m = n = k", xscale="log", xticks=sizes, xticklabels=sizes)
    panel.set_ylim(bottom=0)
    panel.minorticks_off()
    panel.locator_params(axis="y", nbins=TICKS)


def _share(row: Row, ms: float | None, rate: float) -> float:
    return 100 * (row.gflops(ms) or 0.0) / rate
