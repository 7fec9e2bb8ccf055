"""Result of a sweep: scores of members (runs), statistics of settings, the best setting, importance of options."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppax import config
from ppax.core.options import Config
from ppax.loggers.files import without_non_finite
from ppax.reports import comparison
from ppax.reports.differences import too_few
from ppax.reports.settings import identical, settings_of, short_names
from ppax.reports.statistics import Standing, standing_of, statistics_of
from ppax.run import records
from ppax.run.directory import RESULT, read_evaluation
from ppax.scores.tables import number_cell
from ppax.storage import safe_files
from ppax.storage.paths import quoted, relative
from ppax.sweeps import plan as plans
from ppax.sweeps.decisions import Decisions, Stage, lineage_of, scheduled_values
from ppax.sweeps.directory import BEST, Recorded, member_dir
from ppax.sweeps.member import FAULT, end_of
from ppax.sweeps.packing import run_file_of
from ppax.sweeps.plan import Member, Plan, described_values, shown

SEED = "seed"  # column of the table
BEST_HEAD = """\
# The best setting of the sweep with its first seed. `ppax train` with this file begins with the numbers of the sweep's
# member, and then differs by rounding, as a single run is another compiled program than a sweep. Two runs of this file
# are equal bit for bit on the same machine with the same versions.

"""
BEST_OF_POPULATION = """\
# The schedule of values that led to the best policy of the population. Several members trained that policy in turn, so
# that `ppax train` with this file does not repeat it: the policy itself is in members/.

"""
LISTED = 20  # maximum number of members (runs) that are listed below their settings
READ = 500  # maximum number of members whose rows are read when the sweep ends


class MemberResult(NamedTuple):
    """Result of one member (run) of a sweep: its swept values and seed, and its score, NaN if it has none.

    If the member ended early, `dropped` says why it was dropped, or `stopped` why the search stopped it; else they are
    "".
    """

    number: int
    values: Config  # of the swept options, by dotted path
    seed: int
    score: float  # mean return of the final policy over the episodes of its evaluation; NaN: dropped, or no end
    std: float  # of those returns
    env_steps: int  # valid steps of all streams
    dropped: str  # reason why it was dropped; "" otherwise
    run_dir: Path
    stopped: str = ""  # reason why the search stopped it, its score is that at this time; "" otherwise


class SettingResult(NamedTuple):
    """Result of one setting of a sweep (a combination of swept values): a member for each seed, and their scores' IQM.

    `low` and `high` are the ends of the 95 % confidence interval of the IQM (interquartile mean).
    """

    values: Config
    members: tuple[MemberResult, ...]
    # interquartile mean of the scores; members without a score count as the worst, -inf; where a search has stopped
    # members, that of those which trained longest
    iqm: float
    low: float  # 95 % bootstrap interval of the IQM; NaN for one seed, and where a member has no score
    high: float


@dataclasses.dataclass(frozen=True, repr=False)
class SweepResult:
    """Result of a sweep: its settings (combinations of swept values), best first.

    Each member (run) has a run directory as that of an ordinary run. `study` is a sentence on the best trial of a study
    of Optuna, whichever worker of the study has trained it; "" without a study.
    """

    run_dir: Path
    settings: tuple[SettingResult, ...]
    best: Path | None  # run file of the best setting, with its first seed; None if no member has a score
    lineage: tuple[Stage, ...] = ()  # of population-based training: values over time of the best member's learner
    study: str = ""  # best trial of a study, of all its workers

    @property
    def members(self) -> tuple[MemberResult, ...]:
        """Members (runs) of the sweep, in the order of their numbers."""
        return tuple(sorted((member for setting in self.settings for member in setting.members), key=lambda x: x[0]))

    @property
    def dropped(self) -> tuple[MemberResult, ...]:
        """Members (runs) of the sweep that were dropped because numbers of an iteration were not finite."""
        return tuple(member for member in self.members if member.dropped)

    @property
    def stopped(self) -> tuple[MemberResult, ...]:
        """Members (runs) of the sweep that its search stopped before the end of their training."""
        return tuple(member for member in self.members if member.stopped)

    @property
    def environments(self) -> tuple[str, ...]:
        """Environments of the settings, in the order of the sweep; () if `env` is not swept.

        Returns of different environments are not compared: with several of them no setting is the best.
        """
        return tuple(dict.fromkeys(setting.values["env"] for setting in self.settings if "env" in setting.values))

    def __repr__(self) -> str:
        best = self.settings[0]
        return (
            f"SweepResult({str(relative(self.run_dir))!r}: {len(self.members)} members of {len(self.settings)} "
            f"settings, {len(self.dropped)} dropped, "
            + (
                f"of {len(self.environments)} environments)"
                if self.environments[1:]
                else f"best IQM {number_cell(best.iqm)} with {best.values})"
            )
        )

    def __str__(self) -> str:
        """Return the tables of the sweep as text: of its settings and of its members (runs), the best setting first."""
        return self.table()

    def table(self, width: int | None = None) -> str:
        """Return the tables of the sweep as text, the best setting first: of its settings, and of its members (runs).

        If each setting has a single member, there is only the table of members. If settings have several and there are
        more than 20 members in all, a command that lists them takes the place of their table. Where lines would exceed
        `width` characters, the columns are printed in several blocks. A sentence follows where settings have too few
        seeds.
        """
        paths = list(self.settings[0].values)
        columns = short_names(paths)
        names = [columns[path] for path in paths]
        several = any(setting.members[1:] for setting in self.settings)
        parts = []
        if several:
            rows = [["IQM [95 %]", "mean", "min", *names, "seeds"]]
            for setting in self.settings:
                own = [shown(setting.values[path]) for path in paths]
                rows.append([_iqm_text(setting), *_mean_and_min(setting), *own, str(len(setting.members))])
            parts.append(comparison.text_table(list(zip(*rows, strict=True)), rows[0], rows[0][0], width))
        if several and len(self.members) > LISTED:
            parts.append(f"{len(self.members)} members: `ppax compare {quoted(relative(self.run_dir))}` lists them.")
        else:
            rows = [["member", *names, SEED, "score", "std of episodes", ""]]
            for member in (member for setting in self.settings for member in setting.members):
                own = [member.run_dir.name, *(shown(member.values[path]) for path in paths), str(member.seed)]
                end = f"dropped: {member.dropped}" if member.dropped else member.stopped
                rows.append([*own, number_cell(member.score), number_cell(member.std), end])
            parts.append(comparison.text_table(list(zip(*rows, strict=True)), rows[0], rows[0][0], width))
        if several and self.settings[1:]:
            parts += too_few(min(len(setting.members) for setting in self.settings))
        table = "\n\n".join(parts)
        stages = [
            f"  from iteration {x.iteration}, member {x.member}: {described_values(x.values)}" for x in self.lineage
        ]
        return "\n".join(
            [table, *(["best lineage:", *stages] if stages else []), *([self.study] if self.study else [])]
        )

    def notes(self) -> list[str]:
        """Return sentences on settings that trained identically, because their options had no effect.

        The log rows of all members (runs) that have begun are read for this, unless there are too many.
        """
        if not 1 < len(self.settings) <= len(self.members) <= READ:
            return []
        begun = [one.run_dir for one in self.members if (one.run_dir / config.RUN_FILE).is_file()]
        return identical(settings_of([records.read(run_dir) for run_dir in begun]))

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep's result as plain data, as result.json has it; NaN and infinities are None."""
        settings = [
            setting._asdict()
            | {"members": [member._asdict() | {"run_dir": str(relative(member.run_dir))} for member in own]}
            for setting in self.settings
            for own in [setting.members]
        ]
        best = None if self.best is None else str(relative(self.best))
        lineage = {"lineage": [stage._asdict() for stage in self.lineage]} if self.lineage else {}
        further = lineage | ({"study": self.study} if self.study else {})
        plain: dict[str, Any] = without_non_finite(
            {"run_dir": str(relative(self.run_dir)), "best": best, "settings": settings} | further
        )
        return plain


def conclude(path: Path, plan: Plan, members: Sequence[Member], total: int) -> SweepResult:
    """Return the result of a sweep from its members' files, and write result.json and best.toml into `path`.

    best.toml is the run file of the best setting. With a search that changes values (population-based training) each
    member (run) is a setting by itself, with its last values. Settings of several environments are ranked within each,
    and there is no best.toml. `total` is the number of iterations that were planned.
    """
    decisions, groups = Decisions(path), dict[int, list[MemberResult]]()
    for member in members:
        own = groups.setdefault(member.number if plan.search.perturbs else member.setting, [])
        own.append(_result(member_dir(path, member), member, decisions))
    ranked = [_ranked(tuple(group), decisions) for group in groups.values()]
    ranked.sort(key=lambda place: place[:2], reverse=True)  # stable: equal ones in the order of the sweep
    settings = [place.setting for place in ranked]
    envs = list(dict.fromkeys(member.values.get("env") for member in members))
    settings.sort(key=lambda setting: envs.index(setting.values.get("env")))  # stable: ranked within each
    best = path / BEST if math.isfinite(settings[0].iqm) and len(envs) == 1 else None
    lineage: tuple[Stage, ...] = ()
    if best is not None:
        first = next((member for member in settings[0].members if not member.stopped), settings[0].members[0])
        run_config = config.read(first.run_dir / config.RUN_FILE)
        if plan.search.perturbs:
            lineage = lineage_of(decisions, first.number, {member.number: member.values for member in members})
            run_config = scheduled_values(run_config, lineage, total)
        head = BEST_OF_POPULATION if plan.search.perturbs else BEST_HEAD
        safe_files.write_text(best, head + config.to_toml(run_config))
    result = SweepResult(path, tuple(settings), best, lineage)
    safe_files.write_text(path / RESULT, json.dumps(result.to_dict(), indent=1) + "\n")
    return result


def conclude_study(result: SweepResult, recorded: Recorded, best: Any) -> SweepResult:
    """Return `result` with the best trial of a study of Optuna, and write the result to result.json.

    `best` is that trial. If `conclude` has written best.toml for another one, the trial's run file replaces it: where
    another worker of the study has trained the trial, and where a setting with a higher IQM has a member without a
    score, so that the study counts it as pruned.
    """
    path, trials = result.run_dir, {member.number: member.setting for member in recorded.members}
    text = f"best trial of the study: {best.number}, score {number_cell(best.score)}"
    if best.number not in trials.values():
        text += f", of {best.run}: {described_values(best.values)}"
    if trials[result.settings[0].members[0].number] != best.number:
        seed = plans.seeds_of(recorded.run_config, recorded.plan)[0]
        trial = plans.member(recorded.run_config, 0, best.number, best.values, seed)
        safe_files.write_text(path / BEST, BEST_HEAD + config.to_toml(run_file_of(trial)))
    result = dataclasses.replace(result, study=text, best=path / BEST)
    safe_files.write_text(path / RESULT, json.dumps(result.to_dict(), indent=1) + "\n")
    return result


def _result(run_dir: Path, member: Member, decisions: Decisions) -> MemberResult:
    evaluation, end, stop = read_evaluation(run_dir), end_of(run_dir), decisions.stops().get(member.number)
    dropped = f"iteration {end.iteration + 1} is not finite" if end.kind == FAULT else ""
    score, std = (_number(evaluation.get(name)) for name in ("mean_return", "std_return"))
    score, why = (score, "") if stop is None else (stop.score, stop.reason)
    values = decisions.values(member.number, member.values)
    return MemberResult(member.number, values, member.seed, score, std, end.env_steps, dropped, run_dir, why)


def _iqm_text(setting: SettingResult) -> str:
    interval = f" [{number_cell(setting.low)}, {number_cell(setting.high)}]" if math.isfinite(setting.low) else ""
    return f"{number_cell(setting.iqm) if math.isfinite(setting.iqm) else '-'}{interval}"


def _mean_and_min(setting: SettingResult) -> tuple[str, str]:
    """Return mean and minimum of the scores of a setting's members (runs) as text; "-" if a member has no score.

    Members that a search has stopped do not count if others were trained to the end.
    """
    ended = [member for member in setting.members if not member.stopped]
    scores = np.asarray([member.score for member in ended or setting.members])
    known = bool(np.isfinite(scores).all())
    return (number_cell(float(scores.mean())), number_cell(float(scores.min()))) if known else ("-", "-")


class _Place(NamedTuple):
    """Setting of a sweep with the key by which it is ranked: the iteration that it has reached, then its scores.

    `iteration` is the one that its longest-trained members (runs) have reached, infinity for the end of training; a
    later one ranks higher. Between settings with equal iterations `standing` decides, from the scores of the
    longest-trained and the dropped members: first their IQM (interquartile mean), then, if equal, fewer missing scores,
    the lower bound of the IQM's interval, and the mean.
    """

    iteration: float  # that its longest-trained members reached; infinity: the end
    standing: Standing  # of the scores of these members
    setting: SettingResult


def _ranked(members: tuple[MemberResult, ...], decisions: Decisions) -> _Place:
    """Return the setting that these members (runs) belong to, with the key by which it is ranked among settings.

    The interquartile mean of the setting is over the members that trained longest and the dropped ones, whose scores
    count as -inf. A setting all of whose members were dropped ranks below those that the search has stopped.
    """
    stops = decisions.stops()
    ends = {
        x.number: stops[x.number].iteration if x.stopped else math.inf for x in members if not (x.dropped and stops)
    }
    longest = max(ends.values(), default=-math.inf)
    scores = [member.score for member in members if ends.get(member.number, longest) == longest]
    standing = standing_of(scores)
    known = statistics_of(scores)  # without an interval where a member has no score
    setting = SettingResult(members[0].values, members, standing.iqm, known.low, known.high)
    return _Place(longest, standing, setting)


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) else math.nan


def importance(values: Sequence[Mapping[str, Any]], scores: Sequence[float]) -> dict[str, float]:
    """Return the share of the scores' variance that each swept option explains alone, in [0, 1], by the option's path.

    `values` are the swept values of each member (run), `scores` the members' scores. For each option the ranks of the
    scores are fitted: by a mean for each value if values are no numbers, or occur in at least two members on average;
    else by a parabola in the value's rank. The share is the adjusted R^2 of the fit, so that an option without
    influence is near 0. Interactions of options are not seen, so shares need not add to 1.

    Members without a score are left out; all shares are NaN where fewer than four are left, or all scores are equal.
    """
    known = [(own, score) for own, score in zip(values, scores, strict=True) if math.isfinite(score)]
    ranks = ranks_of([score for _, score in known])
    paths = list(values[0]) if values else []
    if len(known) < 4 or np.ptp(ranks) == 0.0:
        return dict.fromkeys(paths, math.nan)
    return {path: _share(_design([own[path] for own, _ in known]), ranks) for path in paths}


def ranks_of(values: Sequence[float]) -> np.ndarray:
    """Return an array with the rank of each value, from 0 for the smallest; equal values share their mean rank."""
    array = np.asarray(values, float)
    below = (array[None, :] < array[:, None]).sum(axis=1)
    same = (array[None, :] == array[:, None]).sum(axis=1)
    return np.asarray(below + (same - 1) / 2.0)


def _design(values: Sequence[Any]) -> np.ndarray:
    """Return the design matrix [members, terms] with which a linear fit predicts scores from the values of one option.

    `values` has the option's value in each member (run). If values are no numbers, or occur in at least two members on
    average, there is a term for each distinct value, 1 in members with this value and 0 in others. Otherwise the terms
    are 1, the value's rank and the squared rank. So a fit needs no constant besides these terms.
    """
    texts = [shown(value) for value in values]
    groups = sorted(set(texts))
    numbers = all(type(value) in (int, float) for value in values)
    if not numbers or len(groups) <= len(values) // 2:
        return np.array([[text == group for group in groups] for text in texts], float)
    ranks = ranks_of(values) / len(values)
    return np.stack([np.ones_like(ranks), ranks, ranks**2], axis=1)


def _share(design: np.ndarray, scores: np.ndarray) -> float:
    """Return the adjusted R^2, at least 0, of a linear fit of `scores` [members] by `design` [members, terms].

    A member is one run of a sweep.
    """
    members, terms = design.shape
    if members <= terms:
        return 0.0
    fit = design @ np.linalg.lstsq(design, scores, rcond=None)[0]
    unexplained = ((scores - fit) ** 2).sum() / ((scores - scores.mean()) ** 2).sum()
    return float(max(0.0, 1.0 - unexplained * (members - 1) / (members - terms)))
