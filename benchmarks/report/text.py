"""The results of a benchmark run as lines and as Markdown; it measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.report.rows import LEFT_OUT, Result, Row, geometric_mean, worst
from oclgen.roofline import Roofs

TITLES = {
    "gemm": "Products, m x n x k",
    "conv": "Convolutions: batch, channels, height, width, filters, kernel",
    "attention": "Attention: batch, heads, kv_heads, queries, keys, head_dim, value_dim",
    "networks": "Networks, whole steps",
    "language": "Language models: layers x width, heads, inner width, vocabulary; texts x tokens",
    "images": "Networks that make images or look at them",
    "architectures": "Drawn model types: layers x width, heads, inner, vocabulary; texts x tokens",
    "pointwise": "Operators that memory limits",
    "sweep": "Drawn operators of every class",
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
        f"{_share(row, roofs)}; peer/ours: {peers}{error}{_beside(row)}  {row.variant}"
        + (f"  tuned: {_tuned(row)}" if row.tuned else "")
        + (f"  {row.reason}" if row.reason else "")
    )


def _beside(row: Row) -> str:
    """Return `_compared` with names, for a line."""
    named = zip(("apart", "fallbacks"), _compared(row), strict=True)
    return "".join(f"  {name} {text}" for name, text in named if text)


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
    seeds = sorted({row.seed for row in result.rows if row.seed is not None})
    if seeds:
        lines.append(f"Seeds of the drawn shapes: {', '.join(map(str, seeds))}.")
    return "\n".join([*lines, *([f"Note: {result.note}"] if result.note else [])])


def _peer(name: str, version: str) -> str:
    return version if version.startswith(name) else f"{name} ({version})"


def means(result: Result) -> str:
    """Return a Markdown table: by group, geometric means and the worst row."""
    rows = sorted(result.rows, key=_order)
    peers = list(dict.fromkeys(peer for row in rows for peer in row.peers))
    groups = list(dict.fromkeys(group for row in rows for group in row.groups))
    heads = [
        column
        for name in (*(f"{p} / ours" for p in peers), "of roof")
        for column in (name, "worst")
    ]
    lines = [f"| group | rows | tuned | {' | '.join(heads)} |", "|---" * (3 + len(heads)) + "|"]
    for group in groups:
        these = [row for row in rows if group in row.groups and row.ours_ms is not None]
        cells = [group, f"{len(these)}", _tuned_rows(these)]
        for peer in peers:
            ratios = [row.ratio(peer) for row in these]
            cells += [_number(geometric_mean(ratios)), _number(worst(ratios))]
        shares = [row.of_roof(result.roofs) for row in these]
        cells += [_percent(geometric_mean(shares)), _percent(worst(shares))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _tuned_rows(rows: Sequence[Row]) -> str:
    """Return how many rows are tuned, nothing where there is nothing to tune."""
    if all(row.tuned is None for row in rows):
        return ""
    return str(sum(row.is_tuned for row in rows))


def markdown(result: Result, plot: Path | None) -> str:
    """Return the whole report; `plot` is shown if there is one."""
    parts = [f"# {result.device.name} ({result.device.runtime})", head(result)]
    parts.append(
        "Times are medians in ms; ratios are the peer's time over ours, both of one run. A roof "
        "is what bounds the row by the rates above; of networks the rate of multiply-adds. Rates "
        "count the operations of the direct algorithm, so that a transformed convolution may pass "
        "its roof. An error is relative, against float64, and empty where it was not computed; "
        "apart are the results of both sides, of networks whose weights are the same on both. "
        "Groups called drawn are of shapes that a seed drew; tuned are those of which a record of "
        "exactly this problem was known."
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
    heads += ["variant", "tuned", "error"]
    extra = [_compared(row) for row in measured]
    if any(any(cells) for cells in extra):
        heads += ["apart", "fallbacks"]
    else:
        extra = [[]] * len(measured)
    lines = [f"| {' | '.join(heads)} |", "|---" * (len(heads) + len(peers)) + "|"]
    for row, cells in zip(measured, extra, strict=True):
        lines.append(f"| {' | '.join([*_cells(row, peers, roofs), *cells])} |")
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
        _tuned(row),
        error,
    ]


def _compared(row: Row) -> list[str]:
    """Return how far the sides' results are apart, and how many calls of ours ran on the CPU."""
    apart = "" if row.difference is None else f"{row.difference:.0e}"
    return [apart, "" if row.fallbacks is None else f"{row.fallbacks}"]


def _tuned(row: Row) -> str:
    if row.tuned is None:
        return ""
    own, all_ = row.tuned
    return f"{own} of {all_}" if all_ > 1 else ("no", "yes")[own]


def _short(key: str) -> str:
    """Return a key without what no benchmark varies: bias, activation and shared operands."""
    return key.removesuffix(":none").removesuffix(":-").removesuffix(":-")


def _share(row: Row, roofs: Roofs) -> str:
    return f"{_percent(row.of_roof(roofs))} of {row.under(roofs).name}"


def _rate(row: Row, ms: float) -> str:
    """Return tokens, operations or, where there are neither, bytes per second."""
    if row.tokens:
        return f"{row.tokens / ms * 1e3:.4g} tokens/s"
    if gflops := row.gflops(ms):
        return f"{gflops:.4g} GFLOP/s" if gflops < 1e4 else f"{gflops / 1e3:.3g} TFLOP/s"
    return f"{row.bytes / ms * 1e-6:.4g} GB/s"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
