"""Summary of runs: a paragraph, and the figures that a reader looks for first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ppax.reports.groups import SEED, Group, by_env
from ppax.reports.statistics import statistics_of
from ppax.reports.words import (
    count_text,
    counted,
    duration_text,
    listed,
    number_text,
    short_count,
    shortened,
    value_text,
)
from ppax.run.records import Record

ENVS, LISTED = 3, 3  # maximum number of environments whose results are in words, and of settings that are named


def title_of(groups: Sequence[Group]) -> str:
    """Names of the environments."""
    names = list(dict.fromkeys(shortened(record.env) for group in groups for record in group.records))
    return listed(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} other environments"


def paragraph(groups: Sequence[Group]) -> str:
    """Environment, steps, time, result and end of the runs, in a few sentences."""
    records = [record for group in groups for record in group.records]
    return f"{_which(groups)} {_how_long(records)} {_result(groups)} {_end(records)}".replace("  ", " ").strip()


def tiles(groups: Sequence[Group]) -> list[tuple[str, str, str]]:
    """Headline figures of the runs: (name, figure, remark); the return is that of the best setting."""
    records, best = [record for group in groups for record in group.records], groups[0]
    evaluated = math.isfinite(best.records[0].result("mean_return"))
    name = "final evaluation" if evaluated else "last return"
    remark = ""
    if len(by_env(groups)) > 1:
        remark = f"best setting on {shortened(best.env)}"
    elif len(groups) > 1:
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
    """Mean of a number over the runs that have it; NaN where none has."""
    values = [value for value in map(number, records) if math.isfinite(value)]
    return float(np.mean(values)) if values else math.nan


def return_text(group: Group) -> str:
    """Final return of a setting: IQM over its seeds with the 95 % interval, and seeds without a return."""
    final = [record.final_return for record in group.records]
    failed = sum(not math.isfinite(value) for value in final)
    text = number_text(group.standing.iqm)
    if final[1:] and not failed:
        s = statistics_of(final)
        text += f" [{number_text(s.low)}, {number_text(s.high)}]"
    return f"{text}, {failed} of {len(final)} without a return" if failed and final[1:] else text


def _which(groups: Sequence[Group]) -> str:
    if len(groups) == 1 and not groups[0].records[1:]:
        record = groups[0].records[0]
        return f"PPO on {shortened(record.env)}, seed {value_text(record.config.get(SEED, '?'))}."
    count = sum(len(group.records) for group in groups)
    runs = f"{counted(count, 'run')} of PPO on {title_of(groups)}"
    if len(groups) == 1:
        seeds = {value_text(record.config.get(SEED, "?")) for record in groups[0].records}
        if len(seeds) < count:
            return f"{runs} with the same settings; some have the same seed, too, and are one run repeated."
        return f"{runs}, which differ by their seed alone."
    settings = f"{runs} in {counted(len(groups), 'setting').lower()}"
    if len(groups) > LISTED:
        return f"{settings}."
    return f"{settings}: {listed([f'{group.label} ({group.seeds})' for group in groups])}."


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


def _result(groups: Sequence[Group]) -> str:
    envs = by_env(groups)
    if len(envs) == 1:
        return _best(groups)
    shown = [f"On {shortened(env)}: {_best(own)}" for env, own in list(envs.items())[:ENVS]]
    return " ".join(shown + ([f"{len(envs) - ENVS} more environments are below."] if len(envs) > ENVS else []))


def _best(groups: Sequence[Group]) -> str:
    """Result of the best setting on one environment."""
    best = groups[0]
    values = [record.final_return for record in best.records if math.isfinite(record.final_return)]
    if not values:
        return "No episode has ended yet."
    record, figure = best.records[0], return_text(best)
    episodes = record.result("episodes")
    place = f"over {count_text(episodes)} evaluation episodes" if math.isfinite(episodes) else "at the last measurement"
    if not best.records[1:] and math.isfinite(record.result("std_return")):
        place += f" (standard deviation {number_text(record.result('std_return'))})"
    of_seeds = "an interquartile mean over the seeds [95 % interval]" if best.records[1:] else "a mean return"
    if len(groups) > 1:
        return f"The best setting is {best.label}, with {of_seeds} of {figure} {place}."
    return f"The policy reaches {of_seeds} of {figure} {place}."


def _end(records: Sequence[Record]) -> str:
    ends = [record.end for record in records]
    if not records[1:]:
        return f"It ended: {shortened(ends[0])}." if records[0].stopped else "The run goes on, or was killed."
    going = sum(not record.stopped for record in records)
    return f"Still running, or killed: {going} of {len(records)} runs." if going else ""
