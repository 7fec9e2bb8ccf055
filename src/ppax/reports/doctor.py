"""Doctor of runs: rules over metrics and options that say why a run does not learn, and which option to try."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ppax import config
from ppax.config.defaults import gamma_of_limit
from ppax.core.options import Config, flatten
from ppax.core.protocols import Row
from ppax.core.types import ConfigError
from ppax.devices.layout import AUTO, WHERE_SAFE
from ppax.loggers.files import finite_or_none, rows_until, thinned
from ppax.networks.heads import needs_squashing
from ppax.policy.spec import space_from_data
from ppax.run import python_objects
from ppax.run.directory import POLICY, ROWS, read_end, read_evaluation, read_policy, read_run_config
from ppax.run.result import TrainedRun
from ppax.storage.paths import command_line, to_path

# Rules of the doctor on the policy's steps, the critic and the environment, and what they read and find.

FAULT, WARNING, NOTICE = "fault", "warning", "notice"  # in the order in which they are shown
SEVERITIES = (FAULT, WARNING, NOTICE)
WIDTH = 100  # characters of a line
FAULTS = ("fault", "environment")  # kinds of ends of runs, in stopped.json
MIN_ROWS = 5  # fewer log rows are too few for a judgement


NEXT = (
    "Next, in this order: `ppax check-env {env}` checks the environment; `ppax play RUN` shows what the policy does; "
    'more steps (total_steps); all that is left is on the page "A run that does not learn".'
)


class Remedy(NamedTuple):
    """Change of a run to try: an option with a concrete value, and the reason."""

    reason: str
    option: str = ""  # full name, as `agent.learning_rate`; "" where no option of the run mends it
    value: Any = None

    def __str__(self) -> str:
        return f"Try {self.option} = {json.dumps(self.value)}: {self.reason}." if self.option else f"{self.reason}."


class Finding(NamedTuple):
    """Symptom that a rule has found in the metrics of a run, and the change to try."""

    diagnosis: str  # one sentence with the figures
    remedy: Remedy
    severity: str = WARNING
    row: int | None = None  # index of the log row at which it is seen first; None: in all
    rule: str = ""  # filled in, like the fields below, by the examination
    group: str = ""  # of agents; "" without groups
    iteration: int = 0
    env_steps: int = 0

    def __str__(self) -> str:
        name = f"{self.rule} of group {self.group!r}" if self.group else self.rule
        where = f"first at iteration {self.iteration:,}, env_steps {self.env_steps:,}" if self.iteration else ""
        text = f"{self.severity}: {name}. {self.diagnosis}" + (f" ({where})" if where else "")
        return "\n".join([*textwrap.wrap(text, WIDTH), *wrapped(str(self.remedy), "  ")])

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as data for JSON."""
        return self._asdict() | {"remedy": self.remedy._asdict()}


class Rule(NamedTuple):
    """Rule of the doctor: a function of the log rows and options of a run that returns a finding, or None."""

    name: str
    sees: str  # for the documentation: the symptom, with its threshold
    remedy: str  # for the documentation: the options to try
    metrics: tuple[str, ...]  # columns that it reads; without one of them it is not examined
    examine: Callable[[ExaminedRun], Finding | None]
    min_rows: int = MIN_ROWS


class Diagnosis(NamedTuple):
    """Findings of all rules on one run; `str` gives the diagnosis as text."""

    findings: tuple[Finding, ...]
    examined: tuple[str, ...]  # names of the rules that were examined
    not_examined: Mapping[str, str]  # reason by name of a rule
    rows: int
    env_steps: int
    progress: str  # one sentence on the returns
    learned: bool = True  # the return rose, as far as it is known, and no evaluation contradicts it
    env: str = ""  # name of the environment

    @property
    def healthy(self) -> bool:
        """Whether no rule has a finding about the run."""
        return not self.findings

    def __str__(self) -> str:
        lines = [f"{self.rows:,} rows, env_steps {self.env_steps:,}. {self.progress}", *map(str, self.findings)]
        if self.healthy:
            found = "Nothing suspicious." if self.learned else "No rule has found a cause."
            lines += textwrap.wrap(f"{found} Examined: {', '.join(self.examined) or 'nothing'}.", WIDTH)
        if self.healthy and not self.learned:
            lines += textwrap.wrap(NEXT.format(env=command_line([self.env or "ENV"])), WIDTH)
        lines += [f"Not examined: {name}, {why}." for name, why in self.not_examined.items()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as data for JSON."""
        findings = [finding.to_dict() for finding in self.findings]
        return {"healthy": self.healthy} | self._asdict() | {"findings": findings}


def wrapped(text: str, indent: str) -> list[str]:
    """Return the lines of a paragraph, each with the indent and at most WIDTH characters long."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def figure(x: float) -> str:
    """Return a number as text with three significant digits; from 1000 on as a whole number, as "12,345"."""
    return f"{x:,.0f}" if 1e3 <= abs(x) < 1e15 else f"{x:.3g}"


def rounded_text(x: float) -> float:
    """Return a number rounded to two significant digits, to be suggested as the value of an option."""
    return float(f"{x:.2g}")


LAST = 2**63  # an iteration that no run reaches
# Least rise of the return of a run that learns, in usual changes between two rows. Returns that only fluctuate around a
# mean rise as much in 2 % of the runs of which a tenth of the rows is one row, and in fewer of the longer ones
CERTAIN = 3.0
EPISODES = 10  # fewest episodes whose mean return is judged


class ExaminedRun(NamedTuple):
    """Log rows and options of a run, as the doctor's rules read them.

    In a run with groups of agents, `group` is the group whose options and metrics are read.
    """

    rows: Sequence[Row]
    options: Mapping[str, Any]  # value of every option by its path
    group: str = ""
    missed: Mapping[str, str] = MappingProxyType({})  # by group: bounds of actions that a normal distribution misses
    evaluated: float = math.nan  # mean return of the evaluation at the end of the run
    fault: str = ""  # message of the fault that ended the run; "" without one

    def has(self, metric: str) -> bool:
        """Return True if the log rows of the run have a column `metric`, or one of `group` such as "entropy/prey"."""
        own = f"{metric}/{self.group}"
        return any(metric in row or own in row for row in self.rows)

    def column(self, metric: str) -> np.ndarray:
        """Return the values [rows] of a metric in the run's log rows, NaN in rows without it.

        If the rows also have the metric for `group` alone, such as "entropy/prey", those values are returned.
        """
        own = f"{metric}/{self.group}"
        name = own if any(own in row for row in self.rows) else metric
        return np.array([math.nan if row.get(name) is None else float(row[name]) for row in self.rows])

    @property
    def off_scale(self) -> str:
        """Bounds of actions that a normal distribution misses, and `squashed` does not; "" where there are none."""
        return self.missed.get(self.group, "")

    def late(self, metric: str) -> np.ndarray:
        """Return the values [rows / 2] of a metric in the second half of the run's log rows; NaN in rows without it."""
        return self.column(metric)[len(self.rows) // 2 :]

    def path(self, name: str) -> str:
        """Return the full path of the agent's option `name`, as "agent.gamma" or "groups.prey.agent.gamma"."""
        return f"groups.{self.group}.agent.{name}" if self.group else f"agent.{name}"

    def option(self, name: str) -> Any:
        """Return the value of the agent's option `name`; None where the agent has no such option."""
        return self.options.get(self.path(name))

    def number(self, name: str) -> float:
        """Return the value of the agent's option `name`, a number; NaN if it is not set.

        If the option is a list with a number for each player (agent inside the environment), the smallest is returned.
        """
        value = self.option(name)
        values = value if isinstance(value, list) else [value]
        return min((math.nan if one is None else float(one) for one in values), default=math.nan)

    def of_run(self, name: str) -> float:
        """Return the run's option `name`, a number such as `total_steps`; NaN where it is unknown."""
        value = self.options.get(name)
        return math.nan if value is None else float(value)


def record_of(run: TrainedRun | str | Path) -> ExaminedRun:
    """Return log rows and options of a run for the rules, from its directory or from a run in memory.

    Raises ConfigError where there is no run or no row.
    """
    if isinstance(run, TrainedRun) and run.run_dir is None:
        rows, options, space = run.history, _options_of(run), run.env.action_space
        evaluated, fault = math.nan, ""
    else:
        path = Path(run.run_dir or "") if isinstance(run, TrainedRun) else to_path(run, "run")
        options = config.resolve(config.plain(python_objects.recorded(read_run_config(path))))
        rows = thinned(rows_until(path / ROWS, LAST))
        described = (path / POLICY).is_file()  # not in a directory that another program has written
        written = read_policy(path).get("action_space") if described else None
        space = space_from_data(written, f"{path / POLICY}: action_space") if described else None
        result = finite_or_none(read_evaluation(path).get("mean_return"))
        evaluated = math.nan if result is None else result
        fault = _fault_of(path)
        if fault and not rows:
            line = python_objects.resume_line(read_run_config(path), path)
            raise ConfigError(
                f"{run}: ended before its first log row, with a fault: {fault}\nWhen it is mended, go on with: {line}"
            )
    if not rows:
        raise ConfigError(f"{run}: has no log rows yet; the first is written after log.every iterations")
    finite = [{name: finite_or_none(value) for name, value in row.items()} for row in rows]
    found = ExaminedRun(finite, dict(flatten(options)), evaluated=evaluated, fault=fault)
    if space is None:
        return found
    parts = space.spaces if isinstance(space, spaces.Dict) and agent_groups(found) != [""] else {"": space}
    return found._replace(missed={group: needs_squashing(own) for group, own in parts.items()})


def _fault_of(path: Path) -> str:
    """Return the message of the fault that ended the run in the directory `path`; "" without one."""
    end = read_end(path)
    if end.get("kind") not in FAULTS:
        return ""
    recorded = [end[name] for name in ("error", "why") if isinstance(end.get(name), str)]
    return recorded[0] if recorded else str(end["kind"])


def _options_of(run: TrainedRun) -> Config:
    """Return the configuration of a run in memory."""
    fields = run.env.settings.run_fields() | {"num_steps": run.state.num_steps, "total_steps": run.total_steps}
    return config.describe_run(run.agent, run.env, config.Run(**fields))


def agent_groups(record: ExaminedRun) -> list[str]:
    """Return the names of the agent groups that have tables in the run file; [""] without groups."""
    named = {path.split(".")[1]: None for path in record.options if path.startswith("groups.")}
    return list(named) or [""]


def median(values: np.ndarray) -> float:
    """Return the median of the finite values; NaN where there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else math.nan


def share(mask: np.ndarray, values: np.ndarray) -> float:
    """Return the share of the finite values at which `mask` is True; 0 where there are none."""
    finite = np.isfinite(values)
    return float(mask[finite].mean()) if finite.any() else 0.0


def first(mask: np.ndarray) -> int:
    """Return the index of the first True in `mask`; 0 where there is none."""
    return int(np.argmax(mask))


def at_ends(record: ExaminedRun, metric: str) -> tuple[float, float]:
    """Return the means of a metric over the first and the last tenth of the rows that have it; NaN without any."""
    values = record.column(metric)
    values = values[np.isfinite(values)]
    if not len(values):
        return math.nan, math.nan
    tenth = max(1, len(values) // 10)
    return float(values[:tenth].mean()), float(values[-tenth:].mean())


def return_column(record: ExaminedRun) -> str:
    """Return the metric by whose rise learning is judged: "episode_return"; if no episode ended, "reward_mean"."""
    ended = np.isfinite(record.column("episode_return")).any() or not record.has("reward_mean")
    return "episode_return" if ended else "reward_mean"


def rose(record: ExaminedRun) -> bool:
    """Return whether the return rose from the first to the last tenth of the log rows, by more than it fluctuates.

    The fluctuation is CERTAIN times the median change between two consecutive rows. If no episode ended, the mean
    reward of a step is used instead of the return.
    """
    name = return_column(record)
    begin, end = at_ends(record, name)
    return end - begin > _fluctuation(record.column(name)) + 1e-6 * abs(begin)


def _fluctuation(values: np.ndarray) -> float:
    """Return the change of the finite values that counts as more than a fluctuation; infinity for fewer than three."""
    values = values[np.isfinite(values)]
    return CERTAIN * float(np.median(np.abs(np.diff(values)))) if len(values) > 2 else math.inf


def fallen_from(record: ExaminedRun) -> float:
    """Return the highest mean return of a tenth of the log rows, if more than half of the rise to it is lost later.

    Else NaN. As in `rose`, rise and loss are more than a fluctuation, and where no episode ended, rewards are examined.
    """
    name = return_column(record)
    values = record.column(name)
    values = values[np.isfinite(values)]
    begin, end = at_ends(record, name)
    if len(values) < MIN_ROWS:
        return math.nan
    tenth = max(1, len(values) // 10)
    top = float(np.convolve(values, np.full(tenth, 1.0 / tenth), "valid").max())
    rise, loss, least = top - begin, top - end, _fluctuation(values)
    return top if rise > least and loss > max(0.5 * rise, least) else math.nan


def learned(record: ExaminedRun) -> bool:
    """Return whether the run learned: its return rose, over enough episodes, and did not fall again.

    It did not learn if an evaluation contradicts the rise.
    """
    few = return_column(record) == "episode_return" and episodes_at_end(record) < EPISODES
    lasting = np.isnan(contradiction(record)) and np.isnan(fallen_from(record))
    return rose(record) and not few and bool(lasting)


def episodes_at_end(record: ExaminedRun) -> float:
    """Return the number of episodes in the last tenth of the log rows; NaN if the rows do not count episodes."""
    counted = record.column("episodes")[np.isfinite(record.column("episode_return"))]
    return float(counted[-max(1, len(counted) // 10) :].sum())


def contradiction(record: ExaminedRun) -> float:
    """Return the mean return of the newest evaluation, if it contradicts a rise of the return in training; else NaN.

    It contradicts the rise if it is nearer to the returns at the beginning of the run than to those at the end.
    """
    begin, end = at_ends(record, "episode_return")
    values = record.column("eval_return")
    values = values[np.isfinite(values)]
    evaluated = float(values[-1]) if len(values) else record.evaluated
    comparable = not record.group or record.has(f"eval_return/{record.group}")
    return evaluated if comparable and rose(record) and evaluated < (begin + end) / 2.0 else math.nan


# Of two actions with 5 % of the entropy of a fair coin one is taken in 99.4 % of the cases; a standard deviation of 5 %
# of the first no longer leaves the neighbourhood of the mean action
ENTROPY_LEFT = 0.05
EARLY = 0.5  # share of total_steps: near the end of a run a policy may be certain
# Mean over the gradient steps of an update. Early stops are usually set from 0.01 to 0.05. Measured in the
# healthy runs of tests/support/sick_runs.py: medians of 0.002 to 0.006, single rows up to 0.12
KL_LARGE = 0.1
OFTEN = 0.2  # share of the rows: single peaks do no harm
# Rows whose ratio has left the clip range in the direction of their advantage give no gradient. The same healthy runs:
# medians of 0.03 to 0.08, rows up to 0.21
CLIPPED = 0.4
NARROW = 0.1  # clip range of the PPO paper for Atari, the smallest in use
# Largest abs(w - 1) before the first gradient step. Rounding of a log-probability of 20 gives 2e-6 in float32; bfloat16
# has 8 bits
RATIO = {"float32": 1e-3} | dict.fromkeys(("bfloat16", WHERE_SAFE, AUTO), 0.2)  # the last two may be either
# CartPole takes about 1,000 gradient steps; Catch, the easiest task measured, was solved after 390
GRADIENT_STEPS = 300
ITERATIONS = 15  # each improves the policy by about a clip range; the shortest runs that solved a task had 24


def entropy_gone(record: ExaminedRun) -> Finding | None:
    """Report an entropy, or std of continuous actions, that falls to nearly 0 in the first half of a run; else None.

    Nothing is reported if the run has learned.
    """
    metric = "policy_std" if record.has("policy_std") else "entropy"
    values = record.column(metric)
    begin = values[first(np.isfinite(values))]
    of_box = metric == "entropy" and bool((values < 0.0).any())  # a differential entropy: 0 means nothing there
    low = values < ENTROPY_LEFT * begin
    at = first(low)
    early = record.column("env_steps")[at] <= EARLY * record.of_run("total_steps")
    if of_box or not low.any() or not early or learned(record):
        return None
    now = record.number("ent_coef")
    name = "the standard deviation of the actions" if metric == "policy_std" else "the entropy of the policy"
    seen = f"It fell from {figure(begin)} to {figure(values[at])}, and no lasting rise of the return is confirmed"
    return Finding(
        f"The policy stopped exploring: {name} was almost 0 before half of the run. {seen}.",
        Remedy("an entropy bonus keeps actions random for longer", record.path("ent_coef"), max(0.01, 3.0 * now)),
        row=at,
    )


def actions_off_scale(record: ExaminedRun) -> Finding | None:
    """Report actions in a range, such as [0, 1000], that a standard normal distribution does not cover; else None."""
    if not record.off_scale or record.option("network.distribution") != "normal":
        return None
    return Finding(
        f"Actions in {record.off_scale} are drawn from a normal distribution that begins around 0 with standard "
        "deviation 1, in the units of the environment: it hardly moves in this range.",
        Remedy(
            "maps its range to that of the actions, as an environment with actions in [-1, 1] would",
            record.path("network.distribution"),
            "squashed",
        ),
    )


def kl_large(record: ExaminedRun) -> Finding | None:
    """Report a KL divergence between the policy before and after an update that is large in many rows; else None."""
    values = record.column("approx_kl")
    large = values > KL_LARGE
    if share(large, values) < OFTEN:
        return None
    count, top, rate = int(large.sum()), np.nanmax(values), record.number("learning_rate")
    rows = int(np.isfinite(values).sum())
    seen = f"approx_kl is above {KL_LARGE} in {count} of {rows} rows, at most {figure(top)}"
    limited = record.number("extensions.kl_control.target_kl") <= 0.02
    # runs with overlap refuse the extension that limits the KL
    if math.isfinite(rate) and (
        rate > 1e-3 or limited or gradient_steps_per_update(record) <= 1 or record.of_run("overlap") > 0
    ):
        remedy = Remedy("smaller steps", record.path("learning_rate"), rounded_text(min(rate / 3.0, 1e-3)))
    else:
        remedy = Remedy(
            "ends an update that has moved the policy far enough", record.path("extensions.kl_control.target_kl"), 0.02
        )
    return Finding(
        f"Updates move the policy too far: {seen}; healthy updates stay near 0.01.", remedy, row=first(large)
    )


def clip_fraction_high(record: ExaminedRun) -> Finding | None:
    """Report a clip fraction (samples whose ratio left the clip range) that is high in half of the rows; else None."""
    values = record.column("clip_fraction")
    high = values > CLIPPED
    if share(high, values) < 0.5:
        return None
    epochs = record.number("num_epochs")
    if record.number("loss.clip_eps") < NARROW:
        remedy = Remedy("a usual clip range", record.path("loss.clip_eps"), 0.2)
    elif epochs > 1:
        remedy = Remedy("fewer passes over the same rollout", record.path("num_epochs"), int(epochs) // 2)
    else:
        rate = record.number("learning_rate")
        remedy = Remedy("smaller steps", record.path("learning_rate"), rounded_text(rate / 3.0))
    seen = f"half of the rows have a clip_fraction above {figure(median(values))}"
    return Finding(f"Much of the data gives no gradient: {seen}; 0.02 to 0.2 is usual.", remedy, row=first(high))


def ratio_not_one(record: ExaminedRun) -> Finding | None:
    """Report a probability ratio that differs from 1 before the first gradient step; else None."""
    values = record.column("ratio_first_max_dev")
    if record.of_run("overlap") > 0:  # only in the first iteration the policy that acts is the one that learns
        values = np.where(record.column("iteration") == 1, values, np.nan)
    dtype = str(record.option("compute_dtype"))
    off = values > RATIO.get(dtype, RATIO["float32"])
    if not off.any():
        return None
    seen = f"before the first gradient step the ratio differs from 1 by up to {figure(np.nanmax(values))}"
    return Finding(
        f"Acting and learning disagree: {seen}, so every gradient is of another policy than the one that acted.",
        Remedy(
            "Look for a part that differs between acting and learning: dropout, statistics of a batch, a memory that "
            "depends on the length of its sequence; `ppax selftest` on the run file names the stage"
        ),
        FAULT,
        first(off),
    )


def few_gradient_steps(record: ExaminedRun) -> Finding | None:
    """Report a number of iterations or gradient steps in the whole run that is too small to learn; else None."""
    iterations = planned_of_run(record)
    a_time = gradient_steps_per_update(record)
    steps = iterations * a_time
    if not iterations > 0.0 or not (iterations < ITERATIONS or steps < GRADIENT_STEPS):  # NaN: unknown
        return None
    seen = f"{iterations:.0f} iterations with {a_time:.3g} gradient steps each"
    if iterations < ITERATIONS:
        factor = 2 ** math.ceil(math.log2(3 * ITERATIONS / max(1.0, iterations)))
        remedy = _smaller_rollouts(record, factor)
    else:
        factor = 2 ** math.ceil(math.log2(3 * GRADIENT_STEPS / max(1.0, steps)))
        size, option = (1 / factor, "rows") if _sized_by_rows(record) else (factor, "num_minibatches")
        now = record.number(f"minibatch.{option}")
        remedy = Remedy("more and smaller minibatches", record.path(f"minibatch.{option}"), max(1, int(now * size)))
    return Finding(f"The whole run learns too rarely: total_steps are {seen}.", remedy)


def _smaller_rollouts(record: ExaminedRun, factor: int) -> Remedy:
    """Return a remedy for too few iterations: `num_steps` divided by `factor`.

    If less than 16 steps would be left, `num_envs` is divided instead; if less than 4 environments would be left,
    `total_steps` is multiplied by `factor`.
    """
    for name, least in (("num_steps", 16), ("num_envs", 4)):
        size = int(record.of_run(name)) // factor
        if size >= least:
            return Remedy("more and smaller rollouts from the same steps", name, size)
    return Remedy("a longer run", "total_steps", int(record.of_run("total_steps")) * factor)


def gradient_steps_per_update(record: ExaminedRun) -> float:
    """Return the number of gradient steps that an update takes, without those that an early stop skips."""
    skipped = median(record.column("updates_skipped"))
    kept = 1.0 if math.isnan(skipped) else 1.0 - skipped
    if _sized_by_rows(record):
        rollout = record.of_run("total_steps") / planned_of_run(record)
        minibatches = rollout / record.number("minibatch.rows")
    else:
        minibatches = record.number("minibatch.num_minibatches")
    return record.number("num_epochs") * minibatches * kept


def _sized_by_rows(record: ExaminedRun) -> bool:
    """Return whether the run sets the number of rows of a minibatch rather than the number of minibatches."""
    return bool(record.option("minibatch.part") == "shuffle_rows")


def planned_of_run(record: ExaminedRun) -> float:
    """Return the number of iterations that the whole run will have; NaN where it is unknown.

    It is `total_steps` divided by the steps of an iteration; these are taken from the log rows so far.
    """
    valid = median(record.column("valid_fraction"))
    rows = record.column("env_steps")[-1] / (valid if valid > 0.0 else 1.0)
    return float(record.column("iteration")[-1] * record.of_run("total_steps") / rows) if rows > 0.0 else math.nan


POLICY_RULES = (
    Rule(
        "ratio_not_one",
        f"`ratio_first_max_dev` above {RATIO['float32']} (bfloat16, {WHERE_SAFE} and auto: {RATIO['bfloat16']}); with "
        "`overlap = 1` in the first iteration alone",
        "`ppax selftest`; no option mends it",
        ("ratio_first_max_dev",),
        ratio_not_one,
        min_rows=1,
    ),
    Rule(
        "few_gradient_steps",
        f"fewer than {ITERATIONS} iterations or {GRADIENT_STEPS} gradient steps in `total_steps`",
        "`num_steps`, `num_envs`, `agent.minibatch.num_minibatches` (or `rows`)",
        ("iteration", "env_steps"),
        few_gradient_steps,
        min_rows=1,
    ),
    Rule(
        "entropy_gone",
        f"`policy_std`, or the `entropy` of discrete actions, below {ENTROPY_LEFT:.0%} of its first value within "
        f"{EARLY:.0%} of the run, while the return did not rise",
        "`agent.ent_coef`",
        ("entropy",),
        entropy_gone,
    ),
    Rule(
        "actions_off_scale",
        "distribution `normal` over Box actions of which one is wider than 40, narrower than 0.1, or three half widths "
        "away from 0",
        "`agent.network.distribution`",
        (),
        actions_off_scale,
        min_rows=1,
    ),
    Rule(
        "kl_large",
        f"`approx_kl` above {KL_LARGE} in {OFTEN:.0%} of the rows",
        "`agent.learning_rate`, `agent.extensions.kl_control.target_kl`",
        ("approx_kl",),
        kl_large,
    ),
    Rule(
        "clip_fraction_high",
        f"`clip_fraction` above {CLIPPED} in half of the rows",
        "`agent.loss.clip_eps`, `agent.num_epochs`, `agent.learning_rate`",
        ("clip_fraction",),
        clip_fraction_high,
    ),
)
EXPLAINED = 0.1  # a critic that predicts a constant explains 0
# Error of V over the mean target below which a low explained variance means nothing: on a solved CartPole all targets
# are alike, and what is left of their variance is rounding (measured: explained variance -3, error 0.2 %)
PRECISE = 0.1
# Root mean square. Units bounded by tanh saturate at targets of 100; the critic stops learning (docs/not_learning.md)
TARGETS_LARGE = 50.0
# Gradient clipping leaves the policy a tenth of its gradient; median norms of healthy runs: 0.5 to 3 times the limit
CLIPPED_BY = 10.0
DOMINATES = 0.9  # share of the value term in the loss


def explained_variance_low(record: ExaminedRun) -> Finding | None:
    """Report an explained variance near or below 0 in the second half of the rows; else None.

    Nothing is reported where the critic's error is small in relation to the mean value target.
    """
    explained, std = record.late("explained_variance"), record.late("target_std")
    error = np.sqrt(np.maximum(0.0, 1.0 - explained)) * std
    bad = (explained < EXPLAINED) & (std > 0.0) & (error > PRECISE * np.abs(record.late("target_mean")))
    if share(bad, explained) <= 0.5:
        return None
    value = figure(median(explained))
    return Finding(
        f"The critic does not predict the returns: the median explained_variance of the second half of the rows is "
        f"{value} (1 is perfect, 0 a constant), so advantages are mostly noise.",
        _better_critic(record),
        row=len(record.rows) // 2 + first(bad),
    )


def targets_large(record: ExaminedRun) -> Finding | None:
    """Report value targets that are large for a critic that regresses on them unscaled; else None."""
    scale = np.sqrt(record.column("target_mean") ** 2 + record.column("target_std") ** 2)
    large = scale > TARGETS_LARGE
    if record.option("critic.part") != "regression" or share(large, scale) <= 0.5:
        return None
    if record.option("normalize_reward"):
        remedy = Remedy("standardises the targets of the critic", record.path("critic.part"), "popart")
    else:
        remedy = _scaled_rewards(record)
    seen = f"half of the rows have value targets of {figure(median(scale))} and more (root mean square)"
    return Finding(f"Rewards are too large for the critic: {seen}.", remedy, row=first(large))


def value_loss_dominates(record: ExaminedRun) -> Finding | None:
    """Report a value loss that takes nearly all of a gradient which gradient clipping shortens a lot; else None.

    Then little of the policy's gradient is left.
    """
    limit, weight = record.number("max_grad_norm"), record.number("vf_coef")
    norm, value = record.column("grad_norm"), weight * record.column("value_loss")
    others = np.abs(record.column("policy_loss")) + record.number("ent_coef") * np.abs(record.column("entropy"))
    part = value / (value + others)
    cut = (norm > CLIPPED_BY * limit) & (part > DOMINATES)  # False without gradient clipping, where the limit is NaN
    if share(cut, norm) <= 0.5:
        return None
    figures = f"vf_coef * value_loss is {median(part):.0%} of the loss, grad_norm {figure(median(norm))}"
    return Finding(
        f"The value loss takes the gradient: {figures} (medians), {figure(median(norm) / limit)} times max_grad_norm: "
        "clipping shortens the policy's gradient as much.",
        Remedy("less weight for the value loss", record.path("vf_coef"), rounded_text(weight / 10.0))
        if record.option("normalize_reward")
        else _scaled_rewards(record),
        row=first(cut),
    )


def _scaled_rewards(record: ExaminedRun) -> Remedy:
    return Remedy("divides rewards by the std of the discounted return", record.path("normalize_reward"), True)


def _better_critic(record: ExaminedRun) -> Remedy:
    """Return a remedy for a poor critic: the first of several changes that the run does not have yet.

    They are, in this order: scaled rewards, more epochs, a memory (recurrent network), a larger network.
    """
    epochs = record.number("num_epochs")
    if not record.option("normalize_reward"):
        return _scaled_rewards(record)
    if epochs < 10:
        return Remedy("more gradient steps for the critic", record.path("num_epochs"), min(10, 2 * int(epochs)))
    if record.option("network.memory.part") == "none" and record.option("network.critic.memory.part") in (None, "same"):
        reason = "the value may depend on the past, which one observation does not show"
        return Remedy(reason, record.path("network.memory.part"), "gru")
    own = "" if record.option("network.critic.hidden") is None else "critic."
    return Remedy("a larger network", record.path(f"network.{own}hidden"), [256, 256])


CRITIC_RULES = (
    Rule(
        "targets_large",
        f"root mean square of the value targets above {TARGETS_LARGE:g} in half of the rows (critic `regression`)",
        "`agent.normalize_reward`, `agent.critic.part`",
        ("target_mean", "target_std"),
        targets_large,
    ),
    Rule(
        "explained_variance_low",
        f"`explained_variance` below {EXPLAINED} in the second half of the rows, where the critic's error is above "
        f"{PRECISE:.0%} of the mean target",
        "`agent.normalize_reward`, `agent.num_epochs`, `agent.network.memory.part`, `agent.network.hidden`",
        ("explained_variance", "target_mean", "target_std"),
        explained_variance_low,
    ),
    Rule(
        "value_loss_dominates",
        f"`vf_coef * value_loss` above {DOMINATES:.0%} of the loss, and `grad_norm` above {CLIPPED_BY:g} times "
        "`max_grad_norm`, in half of the rows",
        "`agent.normalize_reward`, `agent.vf_coef`",
        ("grad_norm", "value_loss", "policy_loss", "entropy"),
        value_loss_dominates,
    ),
)
# Largest absolute entry. Inputs far beyond 1 saturate the first layer; Acrobot is learned with velocities of 28
OBS_LARGE = 50.0
# Growth of the largest entry over a run, from its first row (at least 1) on. Positions and velocities grow 10-fold as a
# policy gets better, a counter of steps as much as episodes get longer
OBS_GROWTH = 1e3
OBS_HUGE = 1e12  # squares of larger numbers, summed over a run, come near the end of float32
# Episodes over horizons 1 / (1 - gamma). Common and well: MuJoCo's 1000 steps at gamma 0.99 are 10, the presets at most
# 10; at 30, rewards after the first thirtieth of an episode weigh less than 1 / e at its start
HORIZONS = 30.0
BEYOND_LIMIT = 2.0  # horizon 1 / (1 - gamma) over a time limit: of what V is made, most lies after the limit
# Shorter episodes of one length are mostly a game's own (Catch: 9 steps); time limits are rarely below
LIMIT_LENGTH = 50
LIMIT_ROWS = 5  # rows in which all episodes have the greatest length, by accident in none
# Length of episodes at the end of a run over that at its begin. CartPole with a cost for each step: 19 to 9 steps
SHORTER = 0.7
PLAYED = 1000  # steps of each environment without an end; the usual longest time limit


def ended_by_fault(record: ExaminedRun) -> Finding | None:
    """Report the fault that ended the run, such as a number that is not finite; else None."""
    if not record.fault:
        return None
    said = record.fault.splitlines()
    return Finding(
        f"The run ended before its total_steps: {said[0]}" + (f" ... {said[-1]}" if len(said) > 1 else ""),
        Remedy("`ppax resume` goes on from the last checkpoint when it is mended"),
        FAULT,
    )


def observations_grow(record: ExaminedRun) -> Finding | None:
    """Report observations that grow a thousandfold during the run, or that exceed 1e12; else None."""
    values = record.column("obs_max")
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return None
    grown = values > OBS_GROWTH * max(values[known[0]], 1.0)
    huge = values > OBS_HUGE
    if not (grown | huge).any():
        return None
    return Finding(
        f"Observations are out of all scale: obs_max, their largest absolute entry, is {figure(values[known[0]])} in "
        f"the first row and {figure(np.nanmax(values))} at most. normalize_obs divides by one standard deviation, in "
        "which all that is not extreme becomes 0.",
        Remedy(
            "`ppax check-env` shows whether observations grow within an episode. Look for a quantity that adds up "
            "without end: leave it out, show its change or its logarithm, or end the episode before"
        ),
        row=first(grown | huge),
    )


def observations_large(record: ExaminedRun) -> Finding | None:
    """Report observations with large entries that are not normalised; else None."""
    values = record.column("obs_max")
    large = values > OBS_LARGE
    if record.option("normalize_obs") or not large.any():
        return None
    return Finding(
        f"Observations are not normalised: their largest entry is {figure(np.nanmax(values))}, and layers learn from "
        "inputs near 1.",
        Remedy("standardises each entry by its running mean and std", record.path("normalize_obs"), True),
        row=first(large),
    )


def horizon_short(record: ExaminedRun) -> Finding | None:
    """Report episodes that are many times as long as the horizon 1 / (1 - gamma); else None."""
    length, gamma = median(record.late("episode_length")), record.number("gamma")
    if not length * (1.0 - gamma) > HORIZONS:
        return None
    horizon = f"1 / (1 - gamma) = {figure(1.0 / (1.0 - gamma))} steps"
    return Finding(
        f"Episodes are longer than gamma sees: half of them take {figure(length)} steps and more, and what comes later "
        f"than {horizon} hardly counts.",
        Remedy("sees a fifth of an episode", record.path("gamma"), round(1.0 - 5.0 / length, 5)),
        NOTICE,
    )


def length_of_cuts(record: ExaminedRun) -> float:
    """Return the length at which all episodes of the second half of the rows are truncated; NaN where some differ."""
    lengths = record.late("episode_length")
    ends, cuts = (np.nansum(record.late(name)) for name in ("terminations", "truncations"))
    known = lengths[np.isfinite(lengths)]
    alike = not ends > 0 and cuts > 0 and len(known) and known.min() == known.max()
    return float(known[0]) if alike else math.nan


def episodes_in_step(record: ExaminedRun) -> Finding | None:
    """Report rollouts that are shorter than the episodes, all of which have the same length; else None.

    Nothing is reported if the run has learned, or if first episodes were staggered.
    """
    limit, steps = length_of_cuts(record), record.of_run("num_steps")
    if not limit > steps or record.options.get("stagger") or learned(record):
        return None
    return Finding(
        f"The time limit of {limit:.0f} steps cuts all episodes, and rollouts have {steps:.0f} steps: environments "
        "that began together stay at the same step, and a rollout has one part of their episodes alone.",
        Remedy("first episodes of random lengths spread the environments over all steps", "stagger", True),
        NOTICE,
    )


def horizon_long(record: ExaminedRun) -> Finding | None:
    """Report a time limit that cuts all episodes and is less than half of the horizon 1 / (1 - gamma); else None."""
    limit, gamma = length_of_cuts(record), record.number("gamma")
    if not BEYOND_LIMIT * limit * (1.0 - gamma) < 1.0:
        return None
    horizon = "no horizon" if gamma == 1.0 else f"a horizon of 1 / (1 - gamma) = {figure(1.0 / (1.0 - gamma))} steps"
    return Finding(
        f"The time limit of {limit:.0f} steps cuts all episodes, and gamma has {horizon}: most of the return that the "
        "critic predicts lies after the limit, where no episode has rewards, and is its own guess.",
        Remedy("its horizon is the time limit", record.path("gamma"), gamma_of_limit(limit)),
        NOTICE,
    )


def reward_not_reached(record: ExaminedRun) -> Finding | None:
    """Report returns (or where no episode ends, rewards) that are the same in all rows; else None."""
    name = return_column(record)
    values = record.column(name)
    values = values[np.isfinite(values)]
    if len(values) < MIN_ROWS or values.max() - values.min() > 1e-6 * np.abs(values).max():
        return None
    if record.option("normalize_obs"):
        now = record.number("ent_coef")
        remedy = Remedy("explores more; or reward steps on the way", record.path("ent_coef"), max(0.01, 3.0 * now))
    else:
        reason = "lets the policy see small entries, and so explore; or reward steps on the way"
        remedy = Remedy(reason, record.path("normalize_obs"), True)
    seen = f"{name} is {figure(values[0])} in all {len(values)} rows"
    said = f"No action made a difference to the reward: {seen}, so there is nothing to learn from."
    if record.options.get("init_from.run"):
        return Finding(f"{said} A policy that is the best one from the start would look alike.", remedy, NOTICE)
    return Finding(said, remedy)


def no_episode_ended(record: ExaminedRun) -> Finding | None:
    """Report a run in which no episode has ended after many steps; else None."""
    played = record.column("iteration")[-1] * record.of_run("num_steps")
    if np.nansum(record.column("episodes")) > 0 or not played >= PLAYED:
        return None
    reset = max(1, int(PLAYED // record.of_run("num_steps")))
    return Finding(
        f"No episode ended in {figure(played)} steps of each environment, so there is no episode_return (reward_mean "
        "is the mean reward of a step), and states far from the start are all that it sees.",
        Remedy(
            "truncates all episodes every so many iterations, and logs their returns; or give the environment a time "
            "limit that it reports as truncated. Evaluations are cut at eval.max_steps",
            "iterations_per_env_reset",
            reset,
        ),
        NOTICE,
    )


def truncation_as_end(record: ExaminedRun) -> Finding | None:
    """Report episodes that look cut by a time limit but were reported as terminated; else None.

    The sign is that in several rows all episodes end at the same length, the greatest of the run, and none is
    truncated.
    """
    length, cuts = record.column("episode_length"), np.nansum(record.column("truncations"))
    longest = np.nanmax(length, initial=0.0)
    at_limit = length == longest
    whole = longest == round(longest) and longest >= LIMIT_LENGTH
    if cuts > 0 or not whole or at_limit.sum() < LIMIT_ROWS:
        return None
    seen = f"in {at_limit.sum()} rows all episodes took exactly {longest:.0f} steps, the most of all, none truncated"
    return Finding(
        f"A time limit looks like an end of the task: {seen}, so the critic learns that nothing comes after.",
        Remedy(
            f"Return truncated, not terminated, at step {longest:.0f} (in JAX: ppax.envs.TimeLimit around the "
            "environment), unless the task itself ends there"
        ),
        FAULT,
        first(at_limit),
    )


def ending_pays(record: ExaminedRun) -> Finding | None:
    """Report episodes that get shorter by terminations while returns are negative: ending early may pay; else None.

    The severity of the finding is "notice", because short episodes are right where the goal is to end soon.
    """
    (begin, end), returns = at_ends(record, "episode_length"), at_ends(record, "episode_return")
    ends, cuts = (np.nansum(record.late(name)) for name in ("terminations", "truncations"))
    costs, shorter = max(returns) < 0.0, 0.0 < end <= SHORTER * begin
    if not (costs and shorter and ends > cuts):
        return None
    return Finding(
        f"Episodes got shorter, from {figure(begin)} to {figure(end)} steps, since a step costs "
        f"{figure(-returns[1] / end)} on average: to end early pays.",
        Remedy(
            "Right where the goal is to end soon. Where it is to last, the sign of the reward is flipped, or its costs "
            "outweigh what a step is worth: reward each step that is survived"
        ),
        NOTICE,
    )


ENVIRONMENT_RULES = (
    Rule(
        "ended_by_fault",
        "a number that is not finite, or an environment that failed, has ended the run",
        "what the message of the fault says; `ppax resume`",
        (),
        ended_by_fault,
        min_rows=1,
    ),
    Rule(
        "truncation_as_end",
        f"all episodes of {LIMIT_ROWS} rows as long as the longest of the run ({LIMIT_LENGTH} steps or more), and no "
        "`truncations`",
        "`truncated` instead of `terminated` in the environment",
        ("episode_length", "truncations"),
        truncation_as_end,
    ),
    Rule(
        "ending_pays",
        f"`episode_length` at the end at most {SHORTER:g} times that at the start, mostly by `terminations`, and "
        "negative returns",
        "none where the goal is to end soon (Acrobot, MountainCar); else the sign of the reward",
        ("episode_return", "episode_length", "terminations", "truncations"),
        ending_pays,
    ),
    Rule(
        "observations_grow",
        f"`obs_max` above {OBS_GROWTH:,.0f} times its first value, or above {OBS_HUGE:g}",
        "bounded observations; `ppax check-env`",
        ("obs_max",),
        observations_grow,
        min_rows=1,
    ),
    Rule(
        "reward_not_reached",
        "the same `episode_return` (without ends: `reward_mean`) in all rows",
        "`agent.normalize_obs`, `agent.ent_coef`, rewards on the way",
        ("episode_return", "reward_mean"),
        reward_not_reached,
    ),
    Rule(
        "no_episode_ended",
        f"no end of an episode in {PLAYED:,} steps of each environment",
        "`iterations_per_env_reset`, a time limit in the environment",
        ("episodes", "iteration"),
        no_episode_ended,
        min_rows=1,
    ),
    Rule(
        "observations_large",
        f"`obs_max` above {OBS_LARGE:g} without `normalize_obs`",
        "`agent.normalize_obs`",
        ("obs_max",),
        observations_large,
        min_rows=1,
    ),
    Rule(
        "horizon_short",
        f"`episode_length` above {HORIZONS:g} / (1 - `gamma`) in the second half of the rows",
        "`agent.gamma`",
        ("episode_length",),
        horizon_short,
    ),
    Rule(
        "horizon_long",
        f"all episodes cut at one `episode_length` below 1 / ({BEYOND_LIMIT:g} (1 - `gamma`))",
        "`agent.gamma`",
        ("episode_length", "terminations", "truncations"),
        horizon_long,
    ),
    Rule(
        "episodes_in_step",
        "all episodes cut at one `episode_length` above `num_steps`, without `stagger`; the return does not rise",
        "`stagger`",
        ("episode_length", "terminations", "truncations"),
        episodes_in_step,
    ),
)


# Examination of a run by all rules: why it does not learn, and what to try.

# In the order in which they are shown: causes before consequences
RULES = (*ENVIRONMENT_RULES, *CRITIC_RULES, *POLICY_RULES)


def doctor(run: TrainedRun | str | Path) -> Diagnosis:
    """Return a diagnosis of a recorded run: why it does not learn, and which option to try.

    It is made from the log rows, the options and the recorded evaluation and end of the run; nothing is trained. `run`
    is a run directory or the result of `fit`. Raises ConfigError if there is no run, or no log row yet.
    """
    return diagnosed(record_of(run))


@np.errstate(all="ignore")  # a file may hold any numbers
def diagnosed(record: ExaminedRun) -> Diagnosis:
    """Return the diagnosis of a run: the findings of all rules of the doctor, for each group of agents."""
    records = [record._replace(group=group) for group in agent_groups(record)]
    missing: dict[str, str] = {}
    findings: list[Finding] = []
    for rule in RULES:
        reasons = [_why_not(rule, of_group) for of_group in records]
        if all(reasons):
            missing[rule.name] = reasons[0]
        found = [_examined(rule, own) for own, reason in zip(records, reasons, strict=True) if not reason]
        own = [finding for finding in found if finding is not None]
        if len(own) == len(records) and len({(finding.diagnosis, finding.remedy) for finding in own}) == 1:
            own = [own[0]._replace(group="")]  # of the whole run, such as a fault that has ended it
        findings += own
    in_order = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    examined = tuple(rule.name for rule in RULES if rule.name not in missing)
    steps = int(record.rows[-1].get("env_steps") or 0)
    env = record.options.get("env")
    return Diagnosis(
        tuple(in_order),
        examined,
        missing,
        len(record.rows),
        steps,
        progress(record),
        learned(record),
        env if isinstance(env, str) else "",
    )


def progress(record: ExaminedRun) -> str:
    """Return one sentence: the mean returns (or rewards) at the start and the end of a run, and whether they rose."""
    name = return_column(record)
    begin, end = at_ends(record, name)
    if np.isnan(begin):
        return "No episode ended."
    top = fallen_from(record)
    went = "rose" if rose(record) else "did not rise"
    if np.isfinite(top):
        went = f"rose to {figure(top)} and fell again"
    if name != "episode_return":
        return f"No episode ended; the reward of a step {went}: {figure(begin)} at the start, {figure(end)} at the end."
    few = episodes_at_end(record)
    if few < EPISODES:
        ends = f"went from {figure(begin)} to {figure(end)}, over {few:.0f} episodes at the end"
        return f"The episode_return {ends}: too few to judge ({EPISODES} are enough)."
    ends = f"{went}: {figure(begin)} at the start, {figure(end)} at the end"
    evaluated = contradiction(record)
    if np.isnan(evaluated):
        return f"The episode_return {ends}."
    own = "`ppax evaluate RUN --sampled` plays it with sampled actions, as training does"
    return f"The episode_return {ends}; the evaluation disagrees: its mean return is {figure(evaluated)} ({own})."


def _examined(rule: Rule, record: ExaminedRun) -> Finding | None:
    """Return the finding of a rule on a run, with the rule's name filled in; None if it has no finding.

    The iteration and steps at which the finding begins are filled in too. A warning is lowered to a notice if the run
    learns.
    """
    found = rule.examine(record)
    if found is None:
        return None
    severity = NOTICE if found.severity == WARNING and learned(record) else found.severity
    found = found._replace(rule=rule.name, severity=severity, group=record.group)
    if found.row is None:
        return found
    row = record.rows[found.row]
    return found._replace(iteration=int(row["iteration"]), env_steps=int(row.get("env_steps") or 0))


def _why_not(rule: Rule, record: ExaminedRun) -> str:
    """Return the reason why a rule cannot be applied to a run, such as a missing metric; "" if it can."""
    absent = [metric for metric in rule.metrics if not record.has(metric)]
    if absent:
        return f"as the rows have no {' and no '.join(absent)}"
    if len(record.rows) < rule.min_rows:
        return f"as it needs {rule.min_rows} rows"
    return ""
