"""Says what a benchmark run found, as lines and as Markdown.

    python benchmarks/report.py benchmarks/results/NAME.json docs/results_NAME.md

It measures nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from results import LEFT_OUT, Result, Row, geometric_mean, load
from roofline import Roofs

TITLES = {
    "gemm": "Products, m x n x k",
    "conv": "Convolutions: batch, channels, height, width, filters, kernel",
    "networks": "Networks, whole steps",
    "pointwise": "Operators that memory limits",
}


def line(row: Row, roofs: Roofs) -> str:
    """Return a row as a line for a terminal."""
    name = f"{row.kind} {_short(row.key)}"
    if row.ours_ms is None:
        return f"{name}: {row.reason}"
    peers = "  ".join(f"{peer} {row.ratio(peer):.2f}" for peer in row.peers)
    error = "" if row.error is None else f"  error {row.error:.0e}"
    return (
        f"{name:<56} {row.ours_ms:10.4f} ms {_rate(row, row.ours_ms):>12} "
        f"{_share(row, roofs)}; peer/ours: {peers}{error}  {row.variant}"
        + (f"  {row.reason}" if row.reason else "")
    )


def head(result: Result) -> str:
    """Return what was measured on, with and by which roofs."""
    device, roofs = result.device, result.roofs
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    peers = ", ".join(_peer(*peer) for peer in result.peers.items())
    matrix = "".join(f", {name} {rate / 1e3:.0f}" for name, rate in roofs.matrix.items())
    lines = [
        f"Device: {device.name}, {device.runtime}, {device.runtime_version}, driver "
        f"{device.driver_version}.",
        f"Ours: oclgen, {versions}. Peers: {peers}.",
        f"Measured roofs: fp32 multiply-add {roofs.gflops / 1e3:.3g} TFLOP/s{matrix}; copies "
        f"{roofs.gbytes:.0f} GB/s.",
    ]
    return "\n".join([*lines, *([f"Note: {result.note}"] if result.note else [])])


def _peer(name: str, version: str) -> str:
    return version if version.startswith(name) else f"{name} ({version})"


def means(result: Result) -> str:
    """Return a Markdown table of geometric means by group."""
    rows = sorted(result.rows, key=_order)
    peers = list(dict.fromkeys(peer for row in rows for peer in row.peers))
    groups = list(dict.fromkeys(group for row in rows for group in row.groups))
    lines = [
        f"| group | rows | {' | '.join(f'{peer} / ours' for peer in peers)} | of roof |",
        "|---|---|" + "---|" * (len(peers) + 1),
    ]
    for group in groups:
        these = [row for row in rows if group in row.groups and row.ours_ms is not None]
        ratios = [_number(geometric_mean(row.ratio(peer) for row in these)) for peer in peers]
        share = _percent(geometric_mean(row.of_roof(result.roofs) for row in these))
        lines.append(f"| {group} | {len(these)} | {' | '.join(ratios)} | {share} |")
    return "\n".join(lines)


def markdown(result: Result, plot: Path | None) -> str:
    """Return the whole report; `plot` is shown if there is one."""
    parts = [f"# {result.device.name} ({result.device.runtime})", head(result)]
    parts.append(
        "Times are medians in ms; ratios are the peer's time over ours, both of one run. A roof "
        "is what bounds the row by the rates above; of networks the rate of multiply-adds. Rates "
        "count the operations of the direct algorithm, so that a transformed convolution may pass "
        "its roof. An error is relative, against float64, and empty where it was not computed."
    )
    if plot:
        parts.append(f"![Parts of the measured peak over size]({plot.name})")
    parts += ["## Geometric means", means(result)]
    for kind, rows in groupby(sorted(result.rows, key=_order), key=lambda row: row.kind):
        parts += [f"## {TITLES[kind]}", _table(list(rows), result.roofs)]
    return "\n\n".join(parts) + "\n"


def _order(row: Row) -> int:
    return list(TITLES).index(row.kind)


def _table(rows: Sequence[Row], roofs: Roofs) -> str:
    peers = list(dict.fromkeys(peer for row in rows for peer in row.peers))
    measured = [row for row in rows if row.ours_ms is not None]
    heads = ["", "ours, ms", "rate", "of roof", *(f"{p}, ms | ratio" for p in peers)]
    lines = [f"| {' | '.join(heads)} | variant | error |", "|---" * (6 + 2 * len(peers)) + "|"]
    lines += [f"| {' | '.join(_cells(row, peers, roofs))} |" for row in measured]
    failed = [f"- {_short(row.key)}: {row.reason}" for row in rows if _has_failed(row)]
    left = sum(row.reason.startswith(LEFT_OUT) for row in rows)
    lines += ["", f"{left} more were left out for lack of time."] if left else []
    lines += ["", "Failed, in whole or in part:", "", *failed] if failed else []
    return "\n".join(lines)


def _has_failed(row: Row) -> bool:
    return bool(row.reason) and not row.reason.startswith(LEFT_OUT)


def _cells(row: Row, peers: Iterable[str], roofs: Roofs) -> list[str]:
    assert row.ours_ms is not None
    theirs = [
        cell
        for peer in peers
        for cell in (
            f"{row.peers[peer]:.4g}" if peer in row.peers else "",
            _number(row.ratio(peer)),
        )
    ]
    error = "" if row.error is None else f"{row.error:.0e}"
    share = _share(row, roofs)
    return [
        _short(row.key),
        f"{row.ours_ms:.4g}",
        _rate(row, row.ours_ms),
        share,
        *theirs,
        row.variant,
        error,
    ]


def _short(key: str) -> str:
    """Return a key without what no benchmark varies: bias, activation and shared operands."""
    return key.removesuffix(":none").removesuffix(":-").removesuffix(":-")


def _share(row: Row, roofs: Roofs) -> str:
    return f"{_percent(row.of_roof(roofs))} of {row.under(roofs).name}"


def _rate(row: Row, ms: float) -> str:
    """Return operations or, where there are none, bytes per second."""
    if gflops := row.gflops(ms):
        return f"{gflops:.4g} GFLOP/s" if gflops < 1e4 else f"{gflops / 1e3:.3g} TFLOP/s"
    return f"{row.bytes / ms * 1e-6:.4g} GB/s"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def main(source: Path, target: Path) -> None:
    """Write the report of a run; a plot of the same name is shown."""
    plot = target.with_suffix(".svg")
    target.write_text(markdown(load(source), plot if plot.exists() else None))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
