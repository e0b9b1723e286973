"""Draws `docs/speed.svg`: how fast networks run on `ocl`, against torch's own device, as ratios.

    python docs/tools/picture.py

It measures nothing: rows come from `benchmarks/results/*.json`. The background is transparent and
text is grey, so that the picture can be read on white and on dark pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parents[2]
PANELS = {
    "nvidia_h200": "NVIDIA H200, batch 64, against CUDA",
    "intel_cpu": "two CPU cores, batch 8, against oneDNN",
}
"""Title of each panel, by the name of its file of results."""
NETWORKS = ("alexnet", "resnet18", "resnet50", "vgg16", "mobilenet_v2")
COLOURS = {"eval": "#2f8fd0", "train": "#e07b39"}
LABELS = {"eval": "evaluation", "train": "training"}
GREY = "#808080"
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "ytick.left": False,
}


def ratios(name: str) -> dict[tuple[str, str], float]:
    """Return torch's time over ours by (network, "eval" or "train"), fp32, of a results file."""
    rows = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())["rows"]
    found = {}
    for row in rows:
        key = re.match(r"(\w+) (eval|train)\b", row["key"])
        if row["kind"] == "networks" and row["dtype"] == "fp32" and key and row["ours_ms"]:
            found[key[1], key[2]] = row["peers"]["torch"] / row["ours_ms"]
    return found


def draw(panel: Axes, title: str, found: dict[tuple[str, str], float]) -> None:
    """Draw a pair of bars for each network, with the ratio after each."""
    for place, network in enumerate(reversed(NETWORKS)):
        for shift, mode in ((0.2, "eval"), (-0.2, "train")):
            ratio = found[network, mode]
            label = LABELS[mode] if place == 0 else None
            panel.barh(place + shift, ratio, 0.36, color=COLOURS[mode], label=label)
            panel.text(ratio + 0.04, place + shift, f"{ratio:.2f}", va="center")
    panel.axvline(1, color=GREY, linewidth=1, linestyle=":")
    panel.set_yticks(range(len(NETWORKS)), reversed(NETWORKS))
    panel.set_xlim(0, 3.2)
    panel.set_title(title, fontsize=9)
    panel.set_xlabel("times as fast as torch (dotted: as fast)")


def main() -> None:
    """Draw all panels into one file."""
    with mpl.rc_context(SETTINGS):
        figure, panels = plt.subplots(
            1, len(PANELS), figsize=(9, 3.1), sharey=True, layout="constrained"
        )
        for panel, (name, title) in zip(panels, PANELS.items(), strict=True):
            draw(panel, title, ratios(name))
        panels[-1].legend(frameon=False, loc="lower right")
        figure.savefig(
            ROOT / "docs/speed.svg", transparent=True, metadata={"Date": None, "Creator": None}
        )


if __name__ == "__main__":
    main()
