"""Log rows and options of a run, as the rules of the doctor read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ppax import config
from ppax.core.options import Config, flatten
from ppax.core.protocols import Row
from ppax.core.types import ConfigError
from ppax.loggers.files import finite_or_none, rows_until, thinned
from ppax.networks.head_for import needs_squashing
from ppax.policy.space_data import from_data
from ppax.run import record as run_record
from ppax.run.directory import POLICY, ROWS, find, read_evaluation, read_policy
from ppax.run.result import TrainedRun
from ppax.storage.paths import to_path

LAST = 2**63  # an iteration that no run reaches
# Least rise of the return of a run that learns, in usual changes between two rows. Returns that only fluctuate around a
# mean rise as much in 2 % of the runs of which a tenth of the rows is one row, and in fewer of the longer ones
CERTAIN = 3.0
EPISODES = 10  # fewest episodes whose mean return is judged


class Record(NamedTuple):
    """Rows and options of a run; `group` chooses the agent's metrics and options in runs with groups."""

    rows: Sequence[Row]
    options: Mapping[str, Any]  # value of every option by its path
    group: str = ""
    off_scale: str = ""  # bounds of actions that a normal distribution misses, and `squashed` does not
    evaluated: float = math.nan  # mean return of the evaluation at the end of the run

    def has(self, metric: str) -> bool:
        """Whether the rows have a column `metric`."""
        return any(metric in row for row in self.rows)

    def column(self, metric: str) -> np.ndarray:
        """Values [rows] of a metric, NaN where a row has none; of the group, where it has a column of its own."""
        own = f"{metric}/{self.group}"
        name = own if self.group and self.has(own) else metric
        return np.array([math.nan if row.get(name) is None else float(row[name]) for row in self.rows])

    def late(self, metric: str) -> np.ndarray:
        """Values [rows / 2] of the second half of the rows."""
        return self.column(metric)[len(self.rows) // 2 :]

    def path(self, name: str) -> str:
        """Full name of an option of the agent."""
        return f"groups.{self.group}.agent.{name}" if self.group else f"agent.{name}"

    def option(self, name: str) -> Any:
        """Value of an option of the agent; None where it has no such option."""
        return self.options.get(self.path(name))

    def number(self, name: str) -> float:
        """Number of the agent, the smallest where every player has one; NaN for none."""
        value = self.option(name)
        values = value if isinstance(value, list) else [value]
        return min((math.nan if one is None else float(one) for one in values), default=math.nan)

    def of_run(self, name: str) -> float:
        """Number of the run, as `total_steps`; NaN where it is unknown."""
        value = self.options.get(name)
        return math.nan if value is None else float(value)


def record_of(run: TrainedRun | str | Path) -> Record:
    """Return the record of a run directory, or of a run in memory; ConfigError where there is no run or no row."""
    if isinstance(run, TrainedRun) and run.run_dir is None:
        rows, options, space, result = run.history, _options_of(run), run.env.action_space, None
    else:
        path = Path(run.run_dir or "") if isinstance(run, TrainedRun) else to_path(run, "run")
        options = config.resolve(config.plain(run_record.recorded(find(path))))
        rows, space = thinned(rows_until(path / ROWS, LAST)), _action_space(path)
        result = finite_or_none(read_evaluation(path).get("mean_return"))
    if not rows:
        raise ConfigError(f"{run}: has no log rows yet; the first is written after log.every iterations")
    finite = [{name: finite_or_none(value) for name, value in row.items()} for row in rows]
    evaluated = math.nan if result is None else result
    return Record(
        finite,
        dict(flatten(options)),
        off_scale="" if space is None else needs_squashing(space),
        evaluated=evaluated,
    )


def _action_space(path: Path) -> spaces.Space | None:
    """Return the action space of a run directory; None where its policy is not described."""
    policy = read_policy(path)
    return from_data(policy["action_space"], f"{path / POLICY}: action_space") if policy else None


def _options_of(run: TrainedRun) -> Config:
    """Configuration of a run in memory."""
    fields = run.env.settings.run_fields() | {"num_steps": run.state.num_steps, "total_steps": run.total_steps}
    return config.describe_run(run.agent, run.env, config.Run(**fields))


def groups_of(record: Record) -> list[str]:
    """Names of the groups with agents of their own; [""] without groups."""
    named = {path.split(".")[1]: None for path in record.options if path.startswith("groups.")}
    return list(named) or [""]


def median(values: np.ndarray) -> float:
    """Median of the finite values; NaN where there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else math.nan


def share(mask: np.ndarray, values: np.ndarray) -> float:
    """Share of the finite values for which `mask` holds; 0 where there are none."""
    finite = np.isfinite(values)
    return float(mask[finite].mean()) if finite.any() else 0.0


def first(mask: np.ndarray) -> int:
    """Index of the first True; 0 where there is none."""
    return int(np.argmax(mask))


def at_ends(record: Record, metric: str) -> tuple[float, float]:
    """Means of a metric over the first and the last tenth of the rows that have it; NaN without any."""
    values = record.column(metric)
    values = values[np.isfinite(values)]
    if not len(values):
        return math.nan, math.nan
    tenth = max(1, len(values) // 10)
    return float(values[:tenth].mean()), float(values[-tenth:].mean())


def rose(record: Record) -> bool:
    """Whether the return rose by more than CERTAIN times its usual change from one row to the next."""
    values = record.column("episode_return")
    values = values[np.isfinite(values)]
    begin, end = at_ends(record, "episode_return")
    return len(values) > 2 and end - begin > CERTAIN * float(np.median(np.abs(np.diff(values)))) + 1e-6 * abs(begin)


def learned(record: Record) -> bool:
    """Whether the return rose, over enough episodes, and no evaluation disagrees."""
    return rose(record) and not episodes_at_end(record) < EPISODES and np.isnan(contradiction(record))


def episodes_at_end(record: Record) -> float:
    """Episodes in the last tenth of the rows with a return; NaN where rows do not count them."""
    counted = record.column("episodes")[np.isfinite(record.column("episode_return"))]
    return float(counted[-max(1, len(counted) // 10) :].sum())


def contradiction(record: Record) -> float:
    """Mean return of the newest evaluation, if it is nearer to the returns at the begin of a run; NaN otherwise."""
    begin, end = at_ends(record, "episode_return")
    values = record.column("eval_return")
    values = values[np.isfinite(values)]
    evaluated = float(values[-1]) if len(values) else record.evaluated
    comparable = not record.group or record.has(f"eval_return/{record.group}")
    return evaluated if comparable and rose(record) and evaluated < (begin + end) / 2.0 else math.nan
