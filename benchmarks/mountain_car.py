"""Learning curves of MountainCar-v0 with ingredients added one at a time to PPO's usual settings.

    python benchmarks/mountain_car.py      # some ten minutes; rows that are measured already are only drawn

Rows are those of mountain_car.toml, measured as `ppax score` does: five held seeds each, final policies, 128 episodes.
Results go to results/mountain_car, the picture to docs/images/mountain_car.png, the table to standard output.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "images" / "mountain_car.png"
GREY, COLOURS = "#9aa3ad", ("#c8553d", "#d99a2b", "#8c6bb1", "#4a7fb5", "#2e9e8f", "#1d5c3f")


def main() -> None:
    """Measure, draw, print the table."""
    from matplotlib.figure import Figure

    from ppax.scores.curves import band
    from ppax.scores.scoring import score_rows
    from ppax.scores.suite import read_suite

    rows = read_suite(HERE / "mountain_car.toml")
    outcomes = score_rows(rows, HERE / "results" / "mountain_car", say=print)
    scores = [outcome.score for outcome in outcomes if outcome.score is not None]
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    for score, colour in zip(scores, (*COLOURS, GREY), strict=False):
        curves = band(score)
        assert curves is not None, "every episode of MountainCar ends after 200 steps"
        axes.fill_between(curves.env_steps, curves.low, curves.high, color=colour, alpha=0.12, lw=0)
        label = f"{score.row.name.replace('-', ' ')}: {score.statistics.iqm:.4g}"
        style = (0, (3, 3)) if colour == GREY else "-"  # it lies on the first curve
        axes.plot(curves.env_steps, curves.mean, color=colour, label=label, lw=1.8, linestyle=style)
    axes.set(xlabel="environment steps", ylabel="episode return", title="MountainCar-v0, one ingredient at a time")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, title="IQM of the final policies", title_fontsize=8)
    figure.savefig(PICTURE, metadata={"Software": None})
    for score in scores:
        seeds = " ".join(f"{x:.4g}" for x in score.scores)
        print(f"| {score.row.name} | {score.statistics.iqm:.4g} | {seeds} |")
    print(f"drawn: {PICTURE}")


if __name__ == "__main__":
    main()
