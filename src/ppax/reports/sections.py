"""Sections of a report: learning, an episode, evaluation, health, losses, speed, and all other metrics."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ppax.reports import health, summary
from ppax.reports.cards import POINTS, cards, grid, lines_of, marked, section
from ppax.reports.charts import Band, Line, chart
from ppax.reports.curves import CONFIDENCE, RANGE
from ppax.reports.groups import SEED, Group, by_env
from ppax.reports.markup import Markup, element, table
from ppax.reports.words import (
    UNKNOWN,
    count_text,
    counted,
    duration_text,
    number_text,
    short_count,
    shortened,
    value_text,
)
from ppax.run.records import EVALUATED, RETURN, Record

WIDE, NARROW = (1000, 360), (380, 270)  # width and height of charts, in pixels
CLEAR = 8  # number of settings, the best, whose learning curves are drawn strongly and with bands
DOTS = 60  # maximum number of evaluations that are drawn as dots
SHOWN = 48  # maximum number of charts of other metrics
COLUMNS = 6  # maximum number of metrics of the environment in the table of evaluations
TABLE_RUNS = 60  # maximum number of runs in a table
COUNTERS = ("iteration", "env_steps", "seconds", "steps_per_second")
LOSSES = {
    "policy_loss": "Term of the policy. Near 0 by construction; its size says little.",
    "value_loss": "Error of the critic. It grows while returns grow, and should fall once they are level.",
    "learning_rate": "Learning rate after schedule and KL control.",
    "kl_coef": "Weight of the KL penalty, as its control sets it.",
    "ent_coef": "Weight of the entropy bonus, as its target or a schedule sets it.",
}
# Entries of evaluation.json that are no metric of the environment
RESULTS = (
    *("mean_return", "std_return", "mean_length", "episodes", "unplayed", "env_steps", "total_steps", "iterations"),
    *("steps_per_second", "train_seconds", "started_at", "compile_seconds"),
)


class Film(NamedTuple):
    """Rendered episode as a GIF, or the reason why there is none."""

    gif: bytes  # empty: none
    caption: str


def learning(groups: Sequence[Group], band: str) -> Markup:
    """Learning curves, one chart for each environment, and a table of the settings, best first."""
    parts, drawn, envs = [], [], by_env(groups)
    for env, own in envs.items():
        lines = return_lines(own, band)
        if lines:
            charts = [
                element("div", chart(lines, *size, f"learning curve on {env}: return over steps"), class_=name)
                for name, size in (("wide", WIDE), ("narrow", NARROW))
            ]
            title = (f"{shortened(env)}. " if len(envs) > 1 else "") + _axis_title(own)
            parts += [element("figure", element("figcaption", title), *charts, class_="plot")]
            parts += [legend(own)] if len(groups) > 1 else []
            drawn += lines
    if not drawn:
        return section("Learning", "No episode has ended yet: there is no return to draw.")
    return section("Learning", _explained(groups, drawn, band), *parts)


def return_lines(groups: Sequence[Group], band: str) -> list[Line]:
    """Learning curves: returns of evaluations, with those of training episodes faint behind them; else the latter.

    The best settings are drawn last, above the others, and only they have bands.
    """
    evaluated = lines_of(groups, EVALUATED, POINTS, band)
    trained = lines_of(groups, RETURN, POINTS, band)
    if not evaluated:
        return _layered(trained)
    dotted_lines = [line._replace(dots=len(line.curve.steps) <= DOTS) for line in evaluated]
    return [line._replace(faint=True) for line in trained] + _layered(dotted_lines)


def _layered(lines: Sequence[Line]) -> list[Line]:
    """Lines from the worst to the best setting; faint from the ninth best on, where bands would hide each other."""
    return [line._replace(faint=place >= CLEAR) for place, line in enumerate(lines)][::-1]


def _axis_title(groups: Sequence[Group]) -> str:
    if any(record.has(EVALUATED) for group in groups for record in group.records):
        return "Return of evaluations during training; faint: training episodes"
    return "Return of training episodes"


def _explained(groups: Sequence[Group], lines: Sequence[Line], band: str) -> str:
    many = any(group.records[1:] for group in groups)
    of_band = {
        CONFIDENCE: "the interquartile mean (IQM) over the seeds of a setting, its band the 95 % bootstrap interval",
        RANGE: "the mean over the seeds of a setting, its band their whole range",
    }
    text = f"A line is {of_band[band]}." if many else ""
    ranges = any((line.curve.low < line.curve.high).any() for line in lines)
    if ranges and not many:
        text = "There are more log rows than points: the line is their mean, the band their lowest and highest value."
    return f"{text} Higher is better.".strip()


def legend(groups: Sequence[Group]) -> Markup:
    """Table of the settings of one environment, best first: final return, line, seeds, steps and time."""
    rows = []
    for group in groups:
        steps = summary.mean_of(group.records, lambda record: record.last("env_steps"))
        seconds = summary.mean_of(group.records, lambda record: record.last("seconds"))
        speed = short_count(summary.mean_of(group.records, lambda record: record.steps_per_second))
        setting = marked(group.label, group)
        rows.append(
            [summary.return_text(group), setting, group.seeds, short_count(steps), duration_text(seconds), speed]
        )
    head = ("IQM of the final return [95 %]", "setting", "runs", "steps", "time", "steps/s")
    return table(head, rows, class_="settings")


def episode(film: Film) -> Markup:
    """Rendered episode."""
    if not film.gif:
        return section("An episode", film.caption)
    data = f"data:image/gif;base64,{base64.b64encode(film.gif).decode()}"
    return section("An episode", film.caption, element("img", src=data, alt="rendered episode", class_="film"))


def evaluation(groups: Sequence[Group]) -> Markup:
    """Table of the evaluations at the end and during training, one row per run."""
    pairs = [(group, record) for group in groups for record in group.records]
    own = list(dict.fromkeys(name for _, record in pairs for name in _own_metrics(record)))[:COLUMNS]
    at_end = any(record.evaluation for _, record in pairs)
    during = any(record.has(EVALUATED) for _, record in pairs)
    head = ["episodes", "mean return", "std", "mean length", *own] if at_end else []
    head += ["last in training", "best in training"] if during else []
    if not head:
        intro = "No final evaluation is recorded: ppax train writes one when a run ends."
        return section("Evaluation", f"{intro} The returns above are those of training, with sampled actions.")
    rows = []
    for group, record in pairs[:TABLE_RUNS]:
        results = [number_text(record.result(name)) for name in ("mean_return", "std_return", "mean_length", *own)]
        row = [marked(shortened(record.name), group), value_text(record.config.get(SEED, "?"))]
        row += [count_text(record.result("episodes")), *results] if at_end else []
        evaluated = (record.last(EVALUATED), record.highest(EVALUATED)) if during else ()
        rows.append([*row, *map(number_text, evaluated)])
    text = "Whole episodes on environments and random numbers that training has not seen."
    return section("Evaluation", text + _left_out(len(pairs)), table(["run", "seed", *head], rows))


def _own_metrics(record: Record) -> list[str]:
    return [name for name in record.evaluation if name not in RESULTS and math.isfinite(record.result(name))]


def _left_out(count: int) -> str:
    return f" The first {TABLE_RUNS} of {count} runs are listed." if count > TABLE_RUNS else ""


def signs(groups: Sequence[Group]) -> Markup:
    """Charts of the metrics that show whether training is sound, with their healthy ranges."""
    records = [record for group in groups for record in group.records]
    found, well, judged = [], 0, 0
    for sign in health.SIGNS:
        share = health.share_in_range(sign, records)
        badge = None if share is None else (health.verdict(share), share >= health.ENOUGH)
        if badge is not None:
            judged, well = judged + 1, well + badge[1]
        band = health.band_of(sign, records)
        found += cards(groups, sign.metric, sign.title, sign.unit, sign.sentence, band, badge)
    if not found:
        return section("Health", "These runs have logged none of the metrics that show it.")
    count = f"{well} of the {judged} metrics that have one stay within it." if judged else ""
    return section("Health", f"The green area is the healthy range. {count}".strip(), grid(found))


def losses(groups: Sequence[Group]) -> Markup:
    """Charts of the losses and the learning rate."""
    records = [record for group in groups for record in group.records]
    more = [name for record in records for name in record.columns if name.endswith("_loss")]
    names = list(dict.fromkeys([*LOSSES, *more]))[:SHOWN]
    found = [one for name in names for one in cards(groups, name, name, "", LOSSES.get(name, ""))]
    text = "Terms that gradient steps minimise, as means over log rows." if found else "These runs have logged none."
    return section("Losses", text, grid(found))


def others(groups: Sequence[Group]) -> Markup:
    """Charts of all metrics that no other section has, folded."""
    records = [record for group in groups for record in group.records]
    done = {*COUNTERS, *LOSSES, *(sign.metric for sign in health.SIGNS), RETURN, EVALUATED}
    names = [name for name in dict.fromkeys(name for record in records for name in record.columns) if name not in done]
    names = [name for name in names if not name.endswith("_loss") and any(record.has(name) for record in records)]
    left = f" The first {SHOWN} of {len(names)} are drawn." if len(names) > SHOWN else ""
    found = grid([one for name in names[:SHOWN] for one in cards(groups, name, name, "", "")])
    title = element("summary", f"{counted(len(names), 'other metric')}")
    intro = element("p", f"docs/metrics.md defines each of them.{left}", class_="intro")
    return element("section", element("details", title, intro, found)) if names else Markup("")


def speed(groups: Sequence[Group]) -> Markup:
    """Steps per second over the run, and the machine of each run."""
    pairs = [(group, record) for group in groups for record in group.records]
    sentence = "Environment steps per second of training, without compilation, evaluation and saving."
    picture = grid(cards(groups, "steps_per_second", "Throughput", "steps per second", "", Band((0.0,))))
    rows = [[marked(shortened(record.name), group), *_machine(record)] for group, record in pairs[:TABLE_RUNS]]
    head = ("run", "started", "training", "compilation", "device", "versions", "commit")
    return section("Speed", sentence + _left_out(len(pairs)), picture, table(head, rows))


def _machine(record: Record) -> Iterator[str]:
    start = record.starts[0] if record.starts else {}
    again = f" (+ {counted(len(record.starts) - 1, 'resume').lower()})" if record.starts[1:] else ""
    yield f"{shortened(str(start.get('time', UNKNOWN)))}{again}"
    yield duration_text(record.last("seconds"))
    yield duration_text(record.result("compile_seconds"))
    cores = f"{start.get('cores', '?')} cores" if start.get("platform") == "cpu" else ""
    device = shortened(str(start.get("device", UNKNOWN)))
    yield f"{device}, {cores}" if cores else device
    packages = start.get("packages")
    known = packages if isinstance(packages, dict) else {}
    yield shortened(", ".join(f"{name} {known[name]}" for name in ("ppax", "jax") if known.get(name)) or UNKNOWN)
    yield str(start.get("git_commit") or UNKNOWN)[:10]
