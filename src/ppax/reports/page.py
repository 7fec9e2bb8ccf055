"""HTML page of a report: a summary in words and figures, then its sections; it loads nothing from elsewhere."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from ppax.config.defaults import DISTRIBUTION, GAMMA
from ppax.reports import health
from ppax.reports.charts import NO_BAND, Band, Line, Markup, chart, element, html_table, joined, look_of, swatch
from ppax.reports.curves import CONFIDENCE, RANGE, common
from ppax.reports.differences import Against, contradictions, difference_columns, differences_of, few_seeds
from ppax.reports.formatting import (
    UNKNOWN,
    count_text,
    duration_text,
    listed,
    number_text,
    short_count,
    shortened,
    value_text,
    with_count,
)
from ppax.reports.settings import (
    SEED,
    Setting,
    by_env,
    by_kind,
    changed,
    notes_on,
    options_of_run,
    setting_differences,
    settings_of,
    short_names,
)
from ppax.reports.statistics import statistics_of
from ppax.run.records import EVALUATED, RETURN, REWARD, Record

# Even if text of a run were taken for markup, no browser would run it or load anything
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class EpisodeFilm(NamedTuple):
    """Rendered episode as an animated GIF, with a caption.

    If `gif` is empty, there is no film, and the caption says why.
    """

    gif: bytes  # empty: none
    caption: str


def page(
    records: Sequence[Record], film: EpisodeFilm | None, made: str, band: str = CONFIDENCE, notes: Sequence[str] = ()
) -> str:
    """Return the HTML of the whole report on one run or several.

    `film` is the episode to show (None: no section), `made` the time at which the page is made, `band` "confidence" or
    "range", as in `curves.mean_curve`, and `notes` are sentences on the runs.
    """
    settings = settings_of(records)
    differences = differences_of(settings)
    notes = [*notes, *notes_on(settings), *contradictions(differences), *few_seeds(differences)]
    title = title_of(settings)
    main = [
        learning(settings, band, differences),
        episode(film) if film is not None else "",
        evaluation(settings),
        signs(settings),
        losses(settings),
        speed(settings),
        configuration(settings),
        others(settings),
    ]
    names = ", ".join(record.name for record in records[:8]) + (", ..." if records[8:] else "")
    footer = element("footer", f"Made by ppax report on {made} from {names}. This page loads nothing from the network.")
    header = element(
        "header",
        element("p", "ppax report", class_="eyebrow"),
        element("h1", title),
        element("p", paragraph(settings), class_="lead"),
        *(element("p", note, class_="note") for note in notes),
        element("dl", *(_tile(*tile) for tile in tiles(settings)), class_="tiles"),
    )
    body = element("body", element("main", header, *main, footer))
    return f"<!DOCTYPE html>\n{element('html', _head(title), body, lang='en')}\n"


def _head(title: str) -> Markup:
    style = Markup((resources.files("ppax.reports") / "page.css").read_text(encoding="utf-8"))
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", f"{title} · ppax report"),
        element("style", style),
    )


def _tile(name: str, figure: str, remark: str) -> Markup:
    return element("div", element("dt", name), joined((element("dd", figure), element("dd", remark, class_="remark"))))


def title_of(settings: Sequence[Setting]) -> str:
    """Return the title of the page: the names of the environments, as "CartPole-v1 and Pendulum-v1".

    If there are more than three, it is the first name and the number of the others, as "CartPole-v1 and 4 other
    environments".
    """
    names = list(dict.fromkeys(shortened(record.env) for setting in settings for record in setting.records))
    return listed(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} other environments"


def paragraph(settings: Sequence[Setting]) -> str:
    """Return a summary of the runs in a few sentences: environment, steps, time, result, and how the runs ended."""
    records = [record for setting in settings for record in setting.records]
    return f"{_which(settings)} {_how_long(records)} {_result(settings)} {_end(records)}".replace("  ", " ").strip()


def _which(settings: Sequence[Setting]) -> str:
    if len(settings) == 1 and not settings[0].records[1:]:
        record = settings[0].records[0]
        return f"PPO on {shortened(record.env)}, seed {value_text(record.config.get(SEED, '?'))}."
    count = sum(len(setting.records) for setting in settings)
    runs = f"{with_count(count, 'run')} of PPO on {title_of(settings)}"
    if len(settings) == 1:
        return f"{runs}, which differ by their seed alone."
    text = f"{runs} in {with_count(len(settings), 'setting').lower()}"
    if len(settings) > LISTED:
        return f"{text}."
    return f"{text}: {listed([f'{setting.label} ({setting.seeds})' for setting in settings])}."


def _how_long(records: Sequence[Record]) -> str:
    steps = [record.last("env_steps") for record in records if record.has("env_steps")]
    if not steps:
        return "There are no log rows yet."
    speed = short_count(mean_of(records, lambda record: record.steps_per_second))
    seconds = duration_text(mean_of(records, lambda record: record.last("seconds")))
    if not records[1:]:
        return f"It trained for {count_text(steps[0])} environment steps in {seconds} ({speed} steps per second)."
    low, high = short_count(min(steps)), short_count(max(steps))
    span = f"about {low}" if low == high else f"{low} to {high}"
    return f"Each trained for {span} environment steps, in {seconds} on average ({speed} steps per second)."


def _result(settings: Sequence[Setting]) -> str:
    envs = by_env(settings)
    if len(envs) == 1:
        return _best(settings)
    shown = [f"On {shortened(env)}: {_best(own)}" for env, own in list(envs.items())[:ENVS]]
    return " ".join(shown + ([f"{len(envs) - ENVS} more environments are below."] if len(envs) > ENVS else []))


def _best(settings: Sequence[Setting]) -> str:
    """Return a sentence with the final return of the best of `settings`, which are on one environment, best first."""
    best = settings[0]
    values = [record.final_return for record in best.records if math.isfinite(record.final_return)]
    if not values:
        return "No episode has ended yet."
    record, figure = best.records[0], return_text(best)
    episodes = record.result("episodes")
    place = f"over {count_text(episodes)} evaluation episodes" if math.isfinite(episodes) else "at the last measurement"
    if not best.records[1:] and math.isfinite(record.result("std_return")):
        place += f" (standard deviation {number_text(record.result('std_return'))})"
    of_seeds = "an interquartile mean over the seeds [95 % interval]" if best.records[1:] else "a mean return"
    if len(settings) > 1:
        among = f"Of those with {best.kind}, the" if best.kind else "The"
        return f"{among} best setting is {best.label}, with {of_seeds} of {figure} {place}. {_beginning(best)}".strip()
    return f"The policy reaches {of_seeds} of {figure} {place}. {_beginning(best)}".strip()


def _beginning(setting: Setting) -> str:
    """Return a sentence with the mean return before training, or at its beginning; "" if neither is known."""
    untrained = mean_of(setting.records, lambda record: record.untrained_return)
    if math.isfinite(untrained):
        return f"The untrained policy had {number_text(untrained)}."
    first = mean_of(setting.records, lambda record: record.first(RETURN))
    known = math.isfinite(first) and any(len(record.numbers(RETURN)) > 1 for record in setting.records)
    return f"The first episodes of training had {number_text(first)}." if known else ""


def _end(records: Sequence[Record]) -> str:
    ends = [record.end for record in records]
    if not records[1:]:
        return f"It ended: {shortened(ends[0])}." if records[0].stopped else "The run goes on, or was killed."
    going = sum(not record.stopped for record in records)
    return f"Still running, or killed: {going} of {len(records)} runs." if going else ""


ENVS, LISTED = 3, 3  # maximum number of environments whose results are in words, and of settings that are named


def tiles(settings: Sequence[Setting]) -> list[tuple[str, str, str]]:
    """Return the headline figures of the runs as (name, figure, remark); the return is that of the best setting.

    A setting is runs that differ by their seed alone.
    """
    records, best = [record for setting in settings for record in setting.records], settings[0]
    evaluated = math.isfinite(best.records[0].result("mean_return"))
    name = "final evaluation" if evaluated else "last return"
    remark = ""
    if len(by_env(settings)) > 1:
        remark = f"best setting on {shortened(best.env)}"
    elif len(settings) > 1:
        remark = "best of the settings"
    elif best.records[1:]:
        remark = f"IQM of {len(best.records)} seeds"
    elif evaluated:
        remark = f"± {number_text(best.records[0].result('std_return'))} over episodes"
    shown = [(name, number_text(best.standing.iqm), remark)]
    each = "per run" if records[1:] else ""
    shown.append(("environment steps", short_count(mean_of(records, lambda record: record.last("env_steps"))), each))
    shown.append(("training time", duration_text(mean_of(records, lambda record: record.last("seconds"))), each))
    speed = short_count(mean_of(records, lambda record: record.steps_per_second))
    return [*shown, ("steps per second", speed, "without compilation")]


def mean_of(records: Sequence[Record], number: Callable[[Record], float]) -> float:
    """Return the mean of `number(record)` over the runs where it is finite; NaN where there are none."""
    values = [value for value in map(number, records) if math.isfinite(value)]
    return float(np.mean(values)) if values else math.nan


def return_text(setting: Setting) -> str:
    """Return the final return of a setting as text: the IQM over its seeds with the 95 % interval.

    If some seeds have no return, the text says how many in place of the interval. With one seed it is that seed's
    return.
    """
    final = [record.final_return for record in setting.records]
    failed = sum(not math.isfinite(value) for value in final)
    text = number_text(setting.standing.iqm)
    if final[1:] and not failed:
        s = statistics_of(final)
        text += f" [{number_text(s.low)}, {number_text(s.high)}]"
    return f"{text}, {failed} of {len(final)} without a return" if failed and final[1:] else text


def learning(settings: Sequence[Setting], band: str, differences: Sequence[Against] = ()) -> Markup:
    """Return the section with the learning curves, a chart for each environment, and tables of settings.

    `differences` are those of the best settings from others; if there are any, a last table shows them.
    """
    parts, drawn, envs = [], [], by_env(settings)
    for env, own in envs.items():
        lines = return_lines(own, band)
        if lines:
            charts = [
                element("div", chart(lines, *size, f"learning curve on {env}: return over steps"), class_=name)
                for name, size in (("wide", WIDE), ("narrow", NARROW))
            ]
            title = (f"{shortened(env)}. " if len(envs) > 1 else "") + _axis_title(own)
            parts += [element("figure", element("figcaption", title), *charts, class_="plot")]
            kinds = by_kind(own) if len(settings) > 1 else {}
            for kind, same in kinds.items():
                parts += ([element("h3", kind)] if kind else []) + [legend(same)]
            drawn += lines
    if not drawn:
        return section("Learning", "No episode has ended yet, and no row has a reward: there is nothing to draw.")
    if differences:
        text = "Best setting less another; and the probability that a seed of it scores higher than one of the other."
        columns = difference_columns(differences)
        head, *rows = zip(*(columns[place] for place in (0, 3, 4, 1, 2)), strict=True)
        parts += [
            element("h3", "Differences"),
            element("p", text, class_="intro"),
            html_table(head, rows, "settings pairs"),
        ]
    return section("Learning", _explained(settings, drawn, band), *parts)


def return_lines(settings: Sequence[Setting], band: str) -> list[Line]:
    """Return the lines of a chart of learning curves: returns of evaluations, and faintly those of training episodes.

    If nothing was evaluated during training, only the returns of training episodes; if no episode has ended, mean
    rewards. The best settings are drawn last, above the others, and only they have bands.
    """
    evaluated = lines_of(settings, EVALUATED, POINTS, band)
    trained = lines_of(settings, RETURN, POINTS, band)
    if not evaluated:
        return _layered(trained or lines_of(settings, REWARD, POINTS, band))
    dotted_lines = [line._replace(dots=len(line.curve.steps) <= DOTS) for line in evaluated]
    return [line._replace(faint=True) for line in trained] + _layered(dotted_lines)


def _layered(lines: Sequence[Line]) -> list[Line]:
    """Return lines, given from the best setting to the worst, in reverse order, so that the best is drawn on top.

    All but the best eight become faint, without bands, as more bands would hide each other.
    """
    return [line._replace(faint=place >= CLEAR) for place, line in enumerate(lines)][::-1]


def _axis_title(settings: Sequence[Setting]) -> str:
    records = [record for setting in settings for record in setting.records]
    trained = any(record.has(RETURN) for record in records)
    if any(record.has(EVALUATED) for record in records):
        return "Return of evaluations during training" + ("; faint: training episodes" if trained else "")
    return "Return of training episodes" if trained else "Mean reward of a step, as no episode has ended"


def _explained(settings: Sequence[Setting], lines: Sequence[Line], band: str) -> str:
    many = any(setting.records[1:] for setting in settings)
    of_band = {
        CONFIDENCE: "the interquartile mean (IQM) over the seeds of a setting, its band the 95 % bootstrap interval",
        RANGE: "the mean over the seeds of a setting, its band their whole range",
    }
    text = f"A line is {of_band[band]}." if many else ""
    ranges = any((line.curve.low < line.curve.high).any() for line in lines)
    if ranges and not many:
        text = "There are more log rows than points: the line is their mean, the band their lowest and highest value."
    return f"{text} Higher is better.".strip()


def legend(settings: Sequence[Setting]) -> Markup:
    """Return a table of the settings of one environment, best first: final return, line sample, seeds, steps, time.

    If a setting has several seeds, mean and minimum over the seeds are in it too, which show seeds that failed.
    """
    rows, several = [], any(setting.records[1:] for setting in settings)
    for setting in settings:
        steps = mean_of(setting.records, lambda record: record.last("env_steps"))
        seconds = mean_of(setting.records, lambda record: record.last("seconds"))
        speed = short_count(mean_of(setting.records, lambda record: record.steps_per_second))
        line = marked(setting.label, setting)
        scores = np.asarray(setting.scores)
        more = [number_text(float(scores.mean())), number_text(float(scores.min()))] if several else []
        shown = [setting.seeds, short_count(steps), duration_text(seconds), speed]
        rows.append([return_text(setting), line, *more, *shown])
    more_heads = ("mean", "min") if several else ()
    head = ("IQM of the final return [95 %]", "setting", *more_heads, "runs", "steps", "time", "steps/s")
    return html_table(head, rows, class_="settings")


def episode(film: EpisodeFilm) -> Markup:
    """Return the section of the page with a rendered episode, or with the reason why there is none."""
    if not film.gif:
        return section("An episode", film.caption)
    data = f"data:image/gif;base64,{base64.b64encode(film.gif).decode()}"
    return section("An episode", film.caption, element("img", src=data, alt="rendered episode", class_="film"))


def evaluation(settings: Sequence[Setting]) -> Markup:
    """Return the section with a table of the evaluations at the end and during training, one row per run."""
    pairs = [(setting, record) for setting in settings for record in setting.records]
    own = list(dict.fromkeys(name for _, record in pairs for name in _own_metrics(record)))[:COLUMNS]
    at_end = any(record.evaluation for _, record in pairs)
    during = any(record.has(EVALUATED) for _, record in pairs)
    head = ["episodes", "mean return", "median", "std of episodes", "mean length", *own] if at_end else []
    head += ["untrained", "last in training", "best in training"] if during else []
    if not head:
        intro = "No final evaluation is recorded: ppax train writes one when a run ends, run.evaluate() in Python."
        return section("Evaluation", f"{intro} The returns above are those of training, with sampled actions.")
    rows = []
    for setting, record in pairs[:TABLE_RUNS]:
        shown = ("mean_return", "median_return", "std_return", "mean_length", *own)
        results = [number_text(record.result(name)) for name in shown]
        row = [marked(shortened(record.name), setting), value_text(record.config.get(SEED, "?"))]
        row += [count_text(record.result("episodes")), *results] if at_end else []
        evaluated = (record.untrained_return, record.last(EVALUATED), record.highest(EVALUATED)) if during else ()
        rows.append([*row, *map(number_text, evaluated)])
    text = "Whole episodes on environments and random numbers that training has not seen."
    text += " The standard deviation (std) is over the episodes of one policy, not over seeds." if at_end else ""
    return section("Evaluation", text + _left_out(len(pairs)), html_table(["run", "seed", *head], rows))


def _own_metrics(record: Record) -> list[str]:
    return [name for name in record.evaluation if name not in RESULTS and math.isfinite(record.result(name))]


def _left_out(count: int) -> str:
    return f" The first {TABLE_RUNS} of {count} runs are listed." if count > TABLE_RUNS else ""


def signs(settings: Sequence[Setting]) -> Markup:
    """Return the section with charts of the metrics that show whether training is sound, with their healthy ranges."""
    records = [record for setting in settings for record in setting.records]
    found, well, judged = [], 0, 0
    for sign in health.SIGNS:
        share = health.share_in_range(sign, records)
        badge = None if share is None else (health.verdict(share), share >= health.ENOUGH)
        if badge is not None:
            judged, well = judged + 1, well + badge[1]
        band = health.band_of(sign, records)
        found += cards(settings, sign.metric, sign.title, sign.unit, sign.sentence, band, badge)
    if not found:
        return section("Health", "These runs have logged none of the metrics that show it.")
    count = f"{well} of the {judged} metrics that have one stay within it." if judged else ""
    return section("Health", f"The green area is the healthy range. {count}".strip(), grid(found))


def losses(settings: Sequence[Setting]) -> Markup:
    """Return the section with charts of the losses and the learning rate."""
    records = [record for setting in settings for record in setting.records]
    more = [name for record in records for name in record.columns if name.endswith("_loss")]
    names = list(dict.fromkeys([*LOSSES, *more]))[:SHOWN]
    found = [one for name in names for one in cards(settings, name, name, "", LOSSES.get(name, ""))]
    text = "Terms that gradient steps minimise, as means over log rows." if found else "These runs have logged none."
    return section("Losses", text, grid(found))


def speed(settings: Sequence[Setting]) -> Markup:
    """Return the section with steps per second over the run, and the machine of each run."""
    pairs = [(setting, record) for setting in settings for record in setting.records]
    sentence = "Environment steps per second of training, without compilation, evaluation and saving."
    picture = grid(cards(settings, "steps_per_second", "Throughput", "steps per second", "", Band((0.0,))))
    rows = [[marked(shortened(record.name), setting), *_machine(record)] for setting, record in pairs[:TABLE_RUNS]]
    head = ("run", "started", "training", "compilation", "device", "versions", "commit")
    return section("Speed", sentence + _left_out(len(pairs)), picture, html_table(head, rows))


def _machine(record: Record) -> Iterator[str]:
    start = record.starts[0] if record.starts else {}
    again = f" (+ {with_count(len(record.starts) - 1, 'resume').lower()})" if record.starts[1:] else ""
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


FILES = 20  # maximum number of run files in a report
UNSAID = (SEED, "log.", "env", "preset")  # options left out: of a single run or its display, or said in the title
# Defaults that depend on more of the environment than its kind, which a record does not have
DEPENDS = {
    GAMMA: "by default 1 - 1/T where a time limit of T < 100 steps truncates episodes",
    DISTRIBUTION: "by default squashed where actions have bounds far from -1 and 1",
}


def configuration(settings: Sequence[Setting]) -> Markup:
    """Return the section about options: how settings differ, what was changed from the defaults, and the run files."""
    firsts = [setting.records[0] for setting in settings]
    rows = {path: values for path, values in setting_differences(firsts).items() if path != SEED}
    parts: list[Any] = []
    if rows:
        names = short_names(list(rows))
        head = ["setting", *(element("code", shortened(names[path]), title=path) for path in rows)]
        own_values = [
            [marked(str(x.place + 1), x), *(value_text(row[x.place]) for row in rows.values())] for x in settings
        ]
        parts += [element("h3", "Differences between the settings"), html_table(head, own_values)]
    found = changed(firsts[0])
    own = {path: pair for path, pair in found.options.items() if path not in rows and not path.startswith(UNSAID)}
    meanings = {option.path: option.doc for option in options_of_run(firsts[0]) if not option.path.endswith(".part")}
    meanings |= {path: f"{meanings[path]}; {more}" for path, more in DEPENDS.items() if path in meanings}
    parts += [element("h3", "Changed from the defaults" + (", in all settings" if rows else ""))]
    parts += [element("p", f"Compared with the settings that a run begins with: {found.of}.", class_="intro")]
    if own:
        cells = (
            [_code(path), value_text(value), value_text(default), element("small", meanings.get(path, ""))]
            for path, (value, default) in own.items()
        )
        parts += [html_table(("option", "value", "default", "meaning"), cells)]
    else:
        parts += [element("p", "Nothing: every option has its default.")]
    parts += [_file(setting) for setting in settings[:FILES]]
    intro = "All other options have their defaults; the run files below have every one."
    return section("Configuration", intro, *parts)


def _file(setting: Setting) -> Markup:
    title = element("summary", marked(f"run.toml of {shortened(setting.records[0].name)}", setting))
    return element("details", title, element("pre", setting.records[0].run_file))


def _code(path: str) -> Markup:
    return element("code", shortened(path))


def others(settings: Sequence[Setting]) -> Markup:
    """Return a collapsed section with charts of all metrics that no other section shows; "" if there are none."""
    records = [record for setting in settings for record in setting.records]
    done = {*COUNTERS, *LOSSES, *(sign.metric for sign in health.SIGNS), RETURN, EVALUATED}
    names = [name for name in dict.fromkeys(name for record in records for name in record.columns) if name not in done]
    names = [name for name in names if not name.endswith("_loss") and any(record.has(name) for record in records)]
    left = f" The first {SHOWN} of {len(names)} are drawn." if len(names) > SHOWN else ""
    found = grid([one for name in names[:SHOWN] for one in cards(settings, name, name, "", "")])
    title = element("summary", f"{with_count(len(names), 'other metric')}")
    intro = element("p", f"The page Metrics of the documentation defines each of them.{left}", class_="intro")
    return element("section", element("details", title, intro, found)) if names else Markup("")


SMALL = (340, 190)  # width and height of small charts, in pixels
POINTS, SMALL_POINTS = 400, 150  # maximum number of points of a curve


def section(title: str, intro: str, *content: object) -> Markup:
    """Return a section of the page: heading `title`, the sentence `intro`, then `content`."""
    return element("section", element("h2", title), element("p", intro, class_="intro"), *content)


def marked(text: str, setting: Setting) -> Markup:
    """Return `text` after a short sample of the line that the setting has in charts.

    A setting is runs that differ by their seed alone.
    """
    return joined((swatch(setting.place), text))


def lines_of(settings: Sequence[Setting], metric: str, points: int, band: str = RANGE) -> list[Line]:
    """Return the line of each setting that has `metric`, in its colour and style, with at most `points` points.

    `band` is "confidence" or "range", as in `curves.mean_curve`.
    """
    curves = [common(setting.records, metric, points, band) for setting in settings]
    return [
        Line(curve, f"{setting.label}: {metric}", *look_of(setting.place))
        for setting, curve in zip(settings, curves, strict=True)
        if len(curve.steps)
    ]


def cards(
    settings: Sequence[Setting],
    metric: str,
    title: str,
    unit: str,
    sentence: str,
    band: Band = NO_BAND,
    badge: tuple[str, bool] | None = None,
) -> list[Markup]:
    """Return small charts of one metric, one for each environment that has it, with title, unit and a sentence.

    `band` has further marks of the charts: a shaded healthy range, a limit, and values that the vertical axis must
    include. `badge` is a short text on the chart, and whether it is good news (it chooses the colour); None: no badge.
    """
    envs, drawn = by_env(settings), []
    for env, own in envs.items():
        lines = lines_of(own, metric, SMALL_POINTS)
        if lines:
            name = shortened(f"{title}, {env}" if len(envs) > 1 else title)
            mark = element("span", badge[0], class_="badge well" if badge[1] else "badge ill") if badge else ""
            below = element(
                "span",
                unit or (f"last {number_text(float(lines[0].curve.value[-1]))}" if len(lines) == 1 else ""),
                class_="unit",
            )
            picture = chart(lines, *SMALL, f"{name} over environment steps", band)
            text = element("p", sentence) if sentence else ""
            drawn += [
                element("figure", element("figcaption", element("b", name), mark, below), picture, text, class_="card")
            ]
    return drawn


def grid(cards: Sequence[Markup]) -> Markup:
    """Return markup that places charts side by side, as many in a row as fit."""
    return element("div", *cards, class_="grid")


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
# Entries of evaluation.json that get no further column in the table of evaluations: it has one, or it is not shown
RESULTS = (
    *(
        "mean_return",
        "median_return",
        "std_return",
        "min_return",
        "max_return",
        "mean_length",
        "truncated",
        "episodes",
        "cut",
        "unplayed",
        "env_steps",
        "total_steps",
        "iterations",
    ),
    *("steps_per_second", "train_seconds", "started_at", "compile_seconds"),
)
