"""Bar charts of ratios from a benchmark's JSON: green if the target is met, red if it is missed, grey without a target.

python benchmarks/plots.py benchmarks/results/speed.json      # draws speed.png again
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

MET, MISSED, FREE, TARGET = "#2a7f62", "#c8553d", "#8a94a6", "#222222"


def draw(path: Path) -> Path:
    """The plot of the results in `path`, beside them; where it is."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    report = json.loads(path.read_text())
    panels = [p for p in report["panels"] if p["bars"]]
    columns = len(panels) if len(panels) < 6 else 4
    rows = -(-len(panels) // columns)
    widths = [max(max(3, len(p["bars"])) for p in panels[i::columns]) for i in range(columns)]
    size = (sum(widths) + 1.2 * columns, 4.2 * rows)
    grid = {"figsize": size, "width_ratios": widths, "squeeze": False, "layout": "constrained"}
    figure, axes = plt.subplots(rows, columns, **grid)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        _draw_panel(axis, panel)
    machine = report["hardware"]
    figure.suptitle(textwrap.fill(report["task"], int(11 * size[0])), fontsize=11)
    name = machine.get("devices", f"{machine['cpu']}, {machine['cores']} cores")
    figure.supxlabel(f"{name}, {report['date'][:10]}", fontsize=8, color="#555555")
    output = path.with_suffix(".png")
    figure.savefig(output, dpi=130)
    plt.close(figure)
    return output


def _draw_panel(axis: Any, panel: dict[str, Any]) -> None:
    bars, higher = panel["bars"], panel["better"] == "higher"
    for i, bar in enumerate(bars):
        value, target = bar["median"], bar["target"]
        color = FREE
        if target is not None:
            color = MET if (value >= target if higher else value <= target) else MISSED
        axis.bar(i, value, width=0.62, color=color)
        axis.errorbar(i, value, [[value - bar["min"]], [bar["max"] - value]], color="#777777", capsize=3, linewidth=1)
        if target is not None:
            label = "target" if not axis.get_legend_handles_labels()[0] else None
            axis.hlines(target, i - 0.42, i + 0.42, color=TARGET, linewidth=2, linestyle=(0, (3, 1)), label=label)
        top = max(bar["max"], target or 0.0, 0.0)
        axis.annotate(f"{value:.2f}", (i, top), (0, 4), textcoords="offset points", ha="center", fontsize=9)
    parity = panel.get("parity", True)  # whether bars are ratios
    if parity:
        axis.axhline(1.0, color="#aaaaaa", linewidth=0.8, zorder=0)
    axis.set_xticks(range(len(bars)), [bar["label"] for bar in bars])
    axis.set_xlim(-0.6, len(bars) - 0.4)
    top = 1.15 * max(max(b["max"], b["target"] or 0.0, float(parity)) for b in bars)
    bottom = 1.15 * min(0.0, *(b["min"] for b in bars))
    axis.set_ylim(bottom, max(top, -0.15 * bottom))  # room for the numbers above bars that hang down
    axis.set_title(f"{panel['title']}\n({panel['better']} is better)", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=8, loc="best")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(draw(Path(argument)))
