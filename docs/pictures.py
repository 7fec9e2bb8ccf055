"""Drawings as SVG: rooms of ppax by level, one training iteration, and training speed for the front page."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT, GAP = 560, 28, 10  # of the drawing, of a box, between boxes; narrow, so that a phone shows readable text
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#134}.s{font-size:13px;fill:#456}rect{fill:#e6f3f1;stroke:#2a8c82}"
    "path{stroke:#2a8c82;fill:none}.a{marker-end:url(#a)}.b{fill:#2a8c82;stroke:none}.d{stroke:#134;stroke-dasharray:4}"
)
MARKER = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8" style="fill:#2a8c82"/></marker></defs>'
)
STAGES = (
    ("anneal", "set scheduled numbers", ""),
    ("collect", "num_steps of all streams", "[T, B]"),
    ("advantages", "one stream, vmapped", "[T, B]"),
    ("sequences", "cut each stream", "[M, L]"),
    ("minibatches", "indices, each epoch", "[n, M / n]"),
    ("gradient step", "forward, loss, optimiser", "params"),
    ("metrics", "reduced on the device", "scalars"),
)
EPOCHS = slice(4, 6)  # stages that are repeated within an update


def rooms() -> str:
    """Draw the rooms (folders of the package) by the levels of the layer test, the highest on top."""
    elements, y = [], 14
    for level in reversed(levels()[:-1]):  # without __init__ and __main__
        if elements:
            elements.append(arrow(f"M{WIDTH // 2} {y - 16}V{y - 2}"))
        for line in lines_of(sorted(level)):
            x = (WIDTH - sum(map(width, line)) - GAP * (len(line) - 1)) // 2
            for room in line:
                elements.append(box(x, y, width(room), room))
                x += width(room) + GAP
            y += HEIGHT + GAP
        y += 18 - GAP
    return svg(y - 4, "Rooms of the package by level; each imports only from lower levels", elements)


def levels() -> list[set[str]]:
    """Return LEVELS of tests/system/test_layers.py, lowest first, read without importing the test."""
    tree = ast.parse((ROOT / "tests" / "system" / "test_layers.py").read_text())
    assignments = (node for node in tree.body if isinstance(node, ast.Assign))
    value = next(node.value for node in assignments if ast.unparse(node.targets[0]) == "LEVELS")
    found: list[set[str]] = ast.literal_eval(value)
    return found


def lines_of(names: Sequence[str]) -> list[list[str]]:
    """Distribute the boxes of one level over as many lines as they need."""
    lines: list[list[str]] = [[]]
    for name in names:
        if sum(map(width, lines[-1])) + width(name) + GAP * len(lines[-1]) > WIDTH - 40:
            lines.append([])
        lines[-1].append(name)
    return lines


def iteration() -> str:
    """Draw the stages of one iteration from top to bottom, and the two loops around them."""
    elements, step, left, wide = [], 46, 40, 364
    middle = left + wide // 2
    for number, (name, meaning, shape) in enumerate(STAGES):
        y = 14 + number * step
        if number:
            elements.append(arrow(f"M{middle} {y - step + HEIGHT + 2}V{y - 2}"))
        elements.append(f'<rect x="{left}" y="{y}" width="{wide}" height="{HEIGHT}" rx="4"/>')
        elements.append(text(left + 10, y + 19, name))
        elements.append(text(left + 118, y + 19, meaning, "s"))
        elements.append(text(left + wide - 8, y + 19, shape, "s", "end"))
    top, bottom = (14 + number * step + HEIGHT // 2 for number in (EPOCHS.start, EPOCHS.stop - 1))
    right = left + wide
    elements.append(arrow(f"M{right} {bottom}H{right + 16}V{top}H{right + 3}"))
    elements += [text(right + 24, (top + bottom) // 2 - 4, "num_epochs times", "s")]
    elements += [text(right + 24, (top + bottom) // 2 + 14, "num_minibatches", "s")]
    first, last = 14 + HEIGHT // 2, 14 + (len(STAGES) - 1) * step + HEIGHT // 2
    elements.append(arrow(f"M{left} {last}H{left - 28}V{first}H{left - 3}"))
    caption = "next iteration: TrainState (learner, actor, key, counters)"
    elements.append(text(left - 28, last + HEIGHT // 2 + 22, caption, "s"))
    label = "One iteration: anneal, collect, advantages, sequences, minibatches, gradient steps, metrics"
    return svg(last + HEIGHT // 2 + 36, label, elements)


def speed() -> str:
    """Draw the speed of benchmarks/results/speed.json: one bar for each number of environments, with its range."""
    report = json.loads((ROOT / "benchmarks" / "results" / "speed.json").read_text())
    bars, cores = report["panels"][0]["bars"], report["hardware"]["cores"]
    left, unit = 140, 370 / max(bar["max"] for bar in bars)  # pixels of a ratio of 1
    title = f"CartPole-v1, {cores} CPU cores: ppax steps/s relative to the faster of rejax and PureJaxRL"
    elements = [text(14, 24, title, "s")]
    for number, bar in enumerate(bars):
        y, end = 38 + number * 34, left + bar["median"] * unit
        low, high = left + bar["min"] * unit, left + bar["max"] * unit
        elements.append(text(left - 10, y + 17, f"{int(bar['label']):,} envs", anchor="end"))
        elements.append(f'<rect class="b" x="{left}" y="{y}" width="{end - left:.1f}" height="24"/>')
        elements.append(f'<path d="M{low:.1f} {y + 12}H{high:.1f}" style="stroke:#134"/>')
        elements.append(text(round(high) + 6, y + 17, f"{bar['median']:.2f}"))
    bottom = 38 + len(bars) * 34
    elements.append(f'<path class="d" d="M{left + unit:.1f} 34V{bottom}"/>')
    elements.append(text(round(left + unit), bottom + 16, "equal speed", "s", "middle"))
    return svg(bottom + 26, "Training steps per second of ppax relative to the faster of rejax and PureJaxRL", elements)


def width(name: str) -> int:
    """Width of the box of a name."""
    return max(70, 9 * len(name) + 16)


def box(x: int, y: int, wide: int, name: str) -> str:
    """Box with its name in the middle."""
    rect = f'<rect x="{x}" y="{y}" width="{wide}" height="{HEIGHT}" rx="4"/>'
    return rect + text(x + wide // 2, y + 19, name, anchor="middle")


def text(x: int, y: int, content: str, style: str = "", anchor: str = "start") -> str:
    """Text at a position."""
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x}" y="{y}" text-anchor="{anchor}">{content}</text>'


def arrow(path: str) -> str:
    """Line with an arrow head."""
    return f'<path class="a" d="{path}"/>'


def svg(height: int, label: str, elements: Sequence[str]) -> str:
    """SVG file of the elements on a white background."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'
    ground = f'<rect width="{WIDTH}" height="{height}" style="fill:#fff;stroke:none"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", MARKER, ground, *elements, "</svg>", ""])
