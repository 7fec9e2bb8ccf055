"""Pictures of the documents.

Drawings as SVG, which docs/generate.py writes: rooms of ppax by level, one training iteration, training speed, and the
clipped objective. Pictures of real runs: `python docs/pictures.py` trains them, five minutes on two cores, and writes
images/landing.png and images/rates.png for README.md, images/clip_runs.png for ppo.md (pip install -e ".[plot,box2d]").
"""

from __future__ import annotations

import ast
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def clip() -> str:
    """Draw the clipped objective of one row over the probability ratio, for an advantage of 1 and of -1."""
    elements = []
    for place, advantage in enumerate((1.0, -1.0)):
        left, panel, top, high = 44 + place * 282, 220, 44, 150
        lowest = -2.0 if advantage < 0 else 0.0
        across, up = panel / 2.0, high / 2.0  # pixels of a ratio of 1, and of an objective of 1

        def at(ratio: float, y: float, left=left, across=across, top=top, high=high, lowest=lowest, up=up) -> str:
            return f"{left + ratio * across:.1f} {top + high - (y - lowest) * up:.1f}"

        clipped, unclipped = clipped_objective(advantage), [(x, x * advantage) for x in (0.0, 2.0)]
        title = "A > 0: more likely, up to 1.2" if advantage > 0 else "A < 0: less likely, down to 0.8"
        elements.append(text(left, 24, html.escape(title)))
        for edge in (0.8, 1.0, 1.2):
            elements.append(f'<path class="d" d="M{at(edge, lowest)}L{at(edge, lowest + 2.0)}" style="opacity:.35"/>')
            elements.append(text(round(left + edge * across), top + high + 18, f"{edge:g}", "s", "middle"))
        elements.append(f'<path d="M{at(0.0, lowest)}H{left + panel}" style="stroke:#134"/>')
        elements.append(f'<path class="d" d="M{"L".join(at(*point) for point in unclipped)}" style="stroke:#9aa"/>')
        elements.append(f'<path d="M{"L".join(at(*point) for point in clipped)}" style="stroke-width:3"/>')
        elements.append(text(left + panel, top + high + 38, "ratio w of the probabilities, new / old", "s", "end"))
    elements.append(
        text(44, 254, "solid: min(w A, clip(w, 0.8, 1.2) A), without gradient where flat; dashed: w A", "s")
    )
    return svg(
        268, "The clipped objective of PPO over the probability ratio, for both signs of the advantage", elements
    )


def clipped_objective(advantage: float) -> list[tuple[float, float]]:
    """Return points (ratio, objective) of ppax's own clipped surrogate, for one advantage."""
    from types import SimpleNamespace

    import jax.numpy as jnp
    import numpy as np

    import ppax

    ratio = np.array([0.02, 0.4, 0.8, 1.0, 1.2, 1.6, 2.0], np.float32)
    new = SimpleNamespace(log_prob=lambda _: jnp.log(ratio))
    steps = SimpleNamespace(action=None, log_prob=jnp.zeros(len(ratio)))
    batch = SimpleNamespace(steps=steps, targets=SimpleNamespace(advantage=jnp.full(len(ratio), advantage)))
    objective = -np.asarray(ppax.losses.ClippedSurrogate(clip_eps=0.2)(new, batch).loss)
    return [(round(float(x), 2), round(float(y), 2)) for x, y in zip(ratio, objective, strict=True)]


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


# ---------------------------------------------------------------- pictures of real runs

TEAL, DARK, GREY = "#2a8c82", "#113344", "#99aaaa"
FRAMES, FIRST = 6, 32  # of the strip; the first is after so many steps, when the lander is in view


def landing() -> None:
    """Draw LunarLander: the learning curve of one run, and an episode of its final policy."""
    import matplotlib.pyplot as plt

    import ppax

    evaluation = {"every": "20k steps", "episodes": 16}
    run = ppax.build("gymnasium/LunarLander-v3", total_steps=500_000, seed=0, eval=evaluation).fit()
    rows = [row for row in run.history if row.get("eval_return") is not None]
    rows = [row for row in rows if row["eval_return"] == row["eval_return"]]  # without rows between two evaluations
    figure = plt.figure(figsize=(11, 3.1), layout="constrained")
    grid = figure.add_gridspec(2, 5, width_ratios=(0.9, 0.9, 1, 1, 1))
    curve = figure.add_subplot(grid[:, :2])
    steps = [row["env_steps"] / 1000 for row in rows]
    low, high = ([row[f"eval_return_{end}"] for row in rows] for end in ("min", "max"))
    curve.fill_between(steps, low, high, color=TEAL, alpha=0.2, linewidth=0)
    curve.plot(steps, [row["eval_return"] for row in rows], color=TEAL, linewidth=2)
    curve.axhline(200.0, color=GREY, linestyle=":")
    curve.set(xlabel="thousand environment steps", ylabel="return of an evaluation", ylim=(-600, 340), xlim=(0, 500))
    curve.set_title("learning curve of one run", fontsize=10, color=DARK)
    curve.text(495, 190, "solved: 200", ha="right", va="top", color=DARK)
    plain(curve)
    episode, reward = episode_of(run.policy())
    for place in range(FRAMES):
        number = FIRST + round(place * (len(episode) - 1 - FIRST) / (FRAMES - 1))
        frame = figure.add_subplot(grid[place // 3, 2 + place % 3])
        frame.imshow(episode[number][:330])  # the rest is ground
        frame.text(12, 12, f"step {number}", color="white", va="top", fontsize=9)
        frame.set_title("an episode of the trained policy" if place == 1 else "", fontsize=10, color=DARK)
        frame.axis("off")
    save(figure, "landing.png")
    print(
        f"landing.png: return {reward:.0f} in {len(episode) - 1} steps; {rows[-1]['eval_return']:.0f} over 16 episodes"
    )


def episode_of(policy: Any) -> tuple[list[Any], float]:
    """Frames and return of one episode of LunarLander."""
    import gymnasium

    game = gymnasium.make("LunarLander-v3", render_mode="rgb_array")
    obs, _ = game.reset(seed=4)
    frames, reward, ended = [game.render()], 0.0, False
    while not ended:
        obs, earned, terminated, truncated, _ = game.step(policy.act(obs))
        frames.append(game.render())
        reward, ended = reward + float(earned), terminated or truncated
    return frames, reward


def rates() -> None:
    """Draw the sweep of README.md: 64 learning rates of CartPole in one compiled program."""
    import dataclasses

    import jax
    import jax.numpy as jnp
    import matplotlib.pyplot as plt
    import numpy as np

    import ppax

    env, values = ppax.make("CartPole-v1", num_envs=16), jnp.logspace(-5, -1, 64)
    agents = dataclasses.replace(ppax.PPO(ppax.networks.mlp(env)), learning_rate=values)
    states = ppax.start_sweep(agents, env, 128, jax.random.split(jax.random.key(0), 64))
    sweep, found = jax.jit(ppax.sweep, static_argnums=3), []
    for _ in range(12):
        states, metrics = sweep(agents, env, states, 8)
        found.append(np.asarray(metrics["episode_return"]))
    returns, steps = np.stack(found), (np.arange(12) + 1) * 8 * 16 * 128 / 1000
    figure, (curves, final) = plt.subplots(1, 2, figsize=(11, 3.1), layout="constrained", width_ratios=(1.2, 1))
    colours = plt.get_cmap("viridis")(np.linspace(0, 1, 64))
    for member in range(64):
        curves.plot(steps, returns[:, member], color=colours[member], linewidth=1)
    curves.set(xlabel="thousand environment steps of each agent", ylabel="episode return", xlim=(0, steps[-1]))
    final.scatter(values, returns[-1], color=colours, s=22)
    final.set(xscale="log", xlabel="learning rate", ylabel="episode return at the end")
    plain(curves)
    plain(final)
    save(figure, "rates.png")
    print(f"rates.png: best {values[int(returns[-1].argmax())]:.1e}")


def clip_runs() -> None:
    """Draw why PPO clips: CartPole with one gradient step an update, and with forty, with and without the clip."""
    import dataclasses

    import jax
    import jax.numpy as jnp
    import matplotlib.pyplot as plt
    import numpy as np

    import ppax

    env, seeds, rows = ppax.make("CartPole-v1", num_envs=8), 16, 50

    def trained(num_epochs: int, num_minibatches: int, clips: Sequence[float]) -> Any:
        """Return episode returns [rows, clips, seeds], a row for every two iterations, of one program for all."""
        minibatch = ppax.minibatches.Shuffle(num_minibatches)
        agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, num_epochs=num_epochs, minibatch=minibatch)
        loss = ppax.losses.ClippedSurrogate(clip_eps=jnp.repeat(jnp.array(clips), seeds))
        keys = jnp.tile(jax.random.split(jax.random.key(0), seeds), len(clips))
        agents = dataclasses.replace(agent, loss=loss)
        states, found = ppax.start_sweep(agents, env, 128, keys), []
        sweep = jax.jit(ppax.sweep, static_argnums=3)
        for _ in range(rows):
            states, metrics = sweep(agents, env, states, 2)
            found.append(np.asarray(metrics["episode_return"]).reshape(len(clips), seeds))
        return np.stack(found)

    one, many = trained(1, 1, [0.2]), trained(10, 4, [0.2, 1e6])
    steps = (np.arange(rows) + 1) * 2 * 8 * 128 / 1000
    figure, axes = plt.subplots(figsize=(8, 3.9), layout="constrained")
    curves = {
        "40 gradient steps an update, clipped at 0.2 (PPO)": (many[:, 0], TEAL),
        "1 gradient step an update (policy gradient)": (one[:, 0], DARK),
        "40 gradient steps an update, not clipped": (many[:, 1], "#c0504d"),
    }
    for label, (returns, colour) in curves.items():
        low, middle, high = np.nanquantile(returns, [0.25, 0.5, 0.75], axis=1)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(steps, middle, color=colour, linewidth=2, label=label)
        print(f"clip_runs.png: {label}: median {middle[-1]:.0f} at the end")
    axes.set(xlabel="thousand environment steps", ylabel="episode return", xlim=(0, steps[-1]), ylim=(0, 520))
    figure.legend(frameon=False, loc="outside upper left", fontsize=9, ncols=1)
    plain(axes)
    save(figure, "clip_runs.png")


def plain(axes: Any) -> None:
    """Axes without a frame at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def save(figure: Any, name: str) -> None:
    """Write a picture on a white ground, readable in a dark theme too."""
    figure.savefig(ROOT / "docs" / "images" / name, dpi=110, facecolor="white")


if __name__ == "__main__":
    landing()
    rates()
    clip_runs()
