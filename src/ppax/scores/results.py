"""Score of a row of the suite: results and learning curves of its seeds, and the file that holds them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import statistics as plain
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ppax import config
from ppax.core import untrusted
from ppax.loggers.files import without_non_finite
from ppax.reports.statistics import Statistics, Verdict, statistics_of, verdict_on
from ppax.scores.suite import RETURN, SuiteRow
from ppax.storage import safe_files

FORMAT = 1  # version of the files; part of the fingerprint
LIMIT = 2**24  # bytes read of a file
# Options that do not change what is learned or how it is evaluated
FREE = ("preset", "seed", "stop", "best.", "log.", "eval.episodes", "eval.deterministic", "vectorization", "timeout")
PASSED, FAILED, MEASURED = "passed", "failed", "measured"
# Share of the seeds that must come near the threshold, by backend: 4 of 5, 2 of 3
SHARES = {"compiled": 4 / 5, "host": 2 / 3}


class SeedResult(NamedTuple):
    """Result of training one seed and evaluating its final policy.

    `score` is the mean return (or other metric of the suite's row) over the episodes of the evaluation, `random` that
    of the untrained policy with sampled actions. `std` is the standard deviation of the returns, `length` the mean
    length of the episodes, and `curve` the learning curve as pairs of environment steps and mean return.
    """

    seed: int
    score: float  # mean return, or mean of the row's metric, of the final policy over the episodes of its evaluation
    std: float  # of the returns
    length: float  # mean length of those episodes
    random: float  # the same of the untrained policy with sampled actions
    env_steps: int  # valid steps of all streams
    seconds: float  # training with compilation; seeds of one program share its time equally
    curve: tuple[tuple[int, float], ...]  # env_steps and mean return of the training episodes since the last point


@dataclasses.dataclass(frozen=True, repr=False)
class Score:
    """Result of `ppax.score`: the result of each seed, in `members`, and statistics over all seeds.

    `episodes` is the number of episodes of each evaluation. `about` has time, versions and hardware, and `fingerprint`
    is a hash of the settings that the score depends on.
    """

    row: SuiteRow
    env: str
    backend: str  # compiled or host
    episodes: int  # of each evaluation
    members: tuple[SeedResult, ...]
    about: dict[str, Any]  # time, versions, hardware
    fingerprint: str

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds that were trained, in ascending order."""
        return tuple(member.seed for member in self.members)

    @property
    def scores(self) -> tuple[float, ...]:
        """Score of each seed, in the order of `seeds`: the mean return (or metric) of its final policy."""
        return tuple(member.score for member in self.members)

    @property
    def statistics(self) -> Statistics:
        """Mean, standard deviation, IQM with its confidence interval, and minimum over the seeds."""
        return statistics_of(self.scores)

    @property
    def random(self) -> float:
        """Mean return (or metric of the row) of the untrained policy with sampled actions, over all seeds."""
        return plain.fmean(member.random for member in self.members)

    @property
    def env_steps(self) -> int:
        """Valid environment steps (no autoresets) of one seed's training; where seeds differ, the largest number."""
        return max(member.env_steps for member in self.members)

    @property
    def seconds(self) -> float:
        """Wall time of training in seconds, all seeds together."""
        return sum(member.seconds for member in self.members)

    @property
    def verdict(self) -> Verdict | None:
        """Verdict: whether the IQM is at least the threshold, and how many seeds are near it; None without a threshold.

        Near is at least 90 % of the way from the score of a random policy to the threshold. To pass, a compiled
        environment needs 4/5 of its seeds near, an environment on the host 2/3.
        """
        if self.row.threshold is None:
            return None
        return verdict_on(self.scores, self.random, self.row.threshold, SHARES[self.backend])

    @property
    def status(self) -> str:
        """ "passed" or "failed"; "measured" where there is no threshold.

        A negative control, whose score must stay low, passes if its IQM is at most the `at_most` of its row.
        """
        if self.row.at_most is not None:
            return PASSED if self.statistics.iqm <= self.row.at_most else FAILED
        if self.verdict is None:
            return MEASURED
        return PASSED if self.verdict.passed else FAILED

    @property
    def reason(self) -> str:
        """Reason why the status is "failed", in words; "" for another status."""
        if self.status != FAILED:
            return ""
        if self.row.at_most is not None:
            return f"the control reached {self.statistics.iqm:.4g}, at most {self.row.at_most:g} is allowed"
        verdict = self.verdict
        assert verdict is not None
        if not verdict.iqm_reached:
            return f"IQM {self.statistics.iqm:.4g}, threshold {self.row.threshold:g}"
        return f"{verdict.near} of {len(self.members)} seeds near the threshold, {verdict.needed} needed"

    def __repr__(self) -> str:
        s = self.statistics
        numbers = f"iqm={s.iqm:.4g}, low={s.low:.4g}, high={s.high:.4g}, minimum={s.minimum:.4g}"
        return f"Score({self.row.target}: {numbers}, seeds={len(self.members)}, status={self.status!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return the score as plain data, as in its file; NaN and infinities are None."""
        row = {name: value for name, value in dataclasses.asdict(self.row).items() if name != "controls"}
        judged = {**self.statistics._asdict(), "random": self.random, "status": self.status, "reason": self.reason}
        plain_data: dict[str, Any] = without_non_finite(
            {
                "row": row,
                "env": self.env,
                "backend": self.backend,
                "episodes": self.episodes,
                "fingerprint": self.fingerprint,
                "result": judged | {"env_steps": self.env_steps, "seconds": self.seconds},
                "about": self.about,
                "members": [member._asdict() for member in self.members],
            }
        )
        return plain_data


def fingerprint(row: SuiteRow, episodes: int, version: str) -> str:
    """Return a hash of what the score of `row` depends on besides seeds: configuration, evaluation, version of ppax.

    Of the configuration only the options that the row sets are hashed, and the version stands for all defaults. So
    results of one version stay valid when an option is added to ppax within it.
    """
    given = row.run_config()
    known = dict(config.flatten(config.resolve(given)))  # values as the run has them: 1 and 1.0 are one learning rate
    options = {path: known.get(path) for path, _ in config.flatten(given)}
    learned = {path: value for path, value in options.items() if not path.startswith(FREE)}
    other = [] if row.metric == RETURN else [row.metric]  # scores of returns keep the hash that they had
    settings = [FORMAT, version, row.sampled, episodes, learned, *other]
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def result_path(row: SuiteRow, out: Path) -> Path:
    """Return the path of the file of a row's score in the folder `out`."""
    return out / f"{row.name}.json"


def save_score(score: Score, out: Path) -> None:
    """Write a score to its file in the folder `out`, atomically, with one line for each entry and each seed."""
    entries = {"format": FORMAT} | score.to_dict()
    members = ",\n  ".join(json.dumps(member) for member in entries.pop("members"))
    lines = [f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in entries.items()]
    safe_files.write_text(result_path(score.row, out), f'{{\n{"".join(lines)} "members": [\n  {members}\n ]\n}}\n')


def load(row: SuiteRow, out: Path) -> Score | None:
    """Return the score of `row` from its file in the folder `out`; None where there is no valid file.

    The score is judged by the present threshold of `row`, not by that at the time of the measurement.
    """
    try:
        content = untrusted.read_json(result_path(row, out), LIMIT)
        if content.get("format", 1) != FORMAT:  # the first files have no entry
            return None
        members = tuple(_member(entry) for entry in content["members"])
        names = ("env", "backend", "episodes", "about", "fingerprint")
        env, backend, episodes, about, written = (content[name] for name in names)
        if not members or backend not in SHARES or not isinstance(about, dict):
            return None
        return Score(row, str(env), backend, int(episodes), members, about, str(written))
    except (OSError, *untrusted.MALFORMED):  # no file, or one that something else wrote
        return None


def row_settings(row: SuiteRow) -> dict[str, Any]:
    """Return those entries of a row that decide what is trained and evaluated, as plain data."""
    entries = ("target", "steps", "metric", "sampled", "options")
    return {name: without_non_finite(getattr(row, name)) for name in entries}


def written_settings(row: SuiteRow, out: Path) -> dict[str, Any]:
    """Return the entries of `row_settings` from the file of a row's score in `out`: those of when it was measured."""
    written = untrusted.read_json(result_path(row, out), LIMIT)["row"]
    return {name: written.get(name, usual) for name, usual in row_settings(SuiteRow()).items()}


def with_members(members: Iterable[SeedResult], more: Iterable[SeedResult]) -> tuple[SeedResult, ...]:
    """Return the results of `members` and `more`, one per seed, by ascending seed; `more` takes precedence."""
    by_seed = {member.seed: member for member in (*members, *more)}
    return tuple(by_seed[seed] for seed in sorted(by_seed))


def _member(entry: dict[str, Any]) -> SeedResult:
    """Return the result of one seed from its entry in the file of a score; None in the entry becomes NaN."""
    number = {name: float("nan") if value is None else value for name, value in entry.items() if name != "curve"}
    curve = tuple((int(steps), float("nan") if value is None else float(value)) for steps, value in entry["curve"])
    floats = {name: float(number[name]) for name in ("score", "std", "length", "random", "seconds")}
    return SeedResult(seed=int(number["seed"]), env_steps=int(number["env_steps"]), curve=curve, **floats)
