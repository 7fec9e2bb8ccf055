"""Settings of an environment: the arguments that it was made with, as they are recorded in a run file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ppax.core.options import Option, check_value, plain_data
from ppax.core.types import ConfigError
from ppax.envs.hosting.action_filter import FILTER
from ppax.envs.wrappers.params import require_table

VECTORIZATIONS = ("sync", "async", "ray")
TIMEOUT = 60.0  # seconds


@dataclasses.dataclass(frozen=True)
class EnvSettings:
    """Settings of an environment: the arguments of `make`, `host` and `grouped` that made it, or their defaults.

    A program is compiled for the environment, not for the way it was made: settings that do not change a program are
    not compared (`compare=False`), so that environments that differ in them alone share one program.
    """

    env: str = ""  # name
    num_envs: int = 0
    action_repeat: int = 1  # environment steps for each action
    vectorization: str = "sync"  # of host environments
    agent_ids: bool = False  # each agent observes its index
    central_critic: bool = False  # the critic observes the joint observation
    players: tuple[tuple[str, tuple[int, ...]], ...] = ()  # name of each group, and the indices of its agents
    info_metrics: tuple[str, ...] | None = None  # entries of `info` that are logged; None: is_success, if it is there
    timeout: float = dataclasses.field(default=TIMEOUT, compare=False)  # seconds for a step of a worker process
    env_params: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    clip_actions: tuple[float, float] | None = None  # low, high of a continuous action's element
    stagger: bool | int = False  # largest length of a first episode; True: the environment's own limit
    schedule: Any = dataclasses.field(default=None, compare=False)  # of the environment's numbers; None: constant
    by_name: bool = dataclasses.field(default=False, compare=False)  # True: `make` can make it again

    def __post_init__(self) -> None:
        """Turn NumPy and JAX arrays in `env_params` into Python numbers and lists, which a run file can hold.

        Raises ConfigError if `env_params` is no mapping.
        """
        require_table(self.env_params)
        object.__setattr__(self, "env_params", plain_data(self.env_params))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `make` for this environment, without its name; all are also fields of a run file."""
        return {name: getattr(self, name) for name in ARGUMENTS}

    def run_fields(self) -> dict[str, Any]:
        """Return the fields of a run file that describe this environment: its name, as "env", and its `arguments`.

        `schedule` is left out where it is None.
        """
        return {"env": self.env} | {name: x for name, x in self.arguments().items() if (name, x) != ("schedule", None)}

    def of_host(self) -> dict[str, Any]:
        """Return these settings as keyword arguments of `host`, without `num_envs`.

        Of `env_params` only the filter of actions is included: all others go to the environment's constructor before
        `host` is called.
        """
        own = {name: value for name, value in self.env_params.items() if name == FILTER}
        given = {name: value for name, value in self.arguments().items() if name not in NATIVE}
        return given | ({"env_params": own} if own else {})

    def check(self) -> None:
        """Raise ConfigError for numbers out of range, and a vectorization that is unknown or not available here.

        With vectorization "sync" a timeout has no effect, and is refused, too.
        """
        if self.vectorization not in VECTORIZATIONS:
            raise ConfigError(f"vectorization = {self.vectorization!r}: must be one of {', '.join(VECTORIZATIONS)}")
        if self.vectorization == "async" and os.name != "posix":
            raise ConfigError(
                'vectorization = "async": worker processes need Linux or macOS; nearest valid value: "sync" '
                "(--vectorization sync), which steps the environments in this process"
            )
        check_value(Option("timeout", float, limits={"above": 0.0}), self.timeout)
        check_value(ACTION_REPEAT, self.action_repeat)
        if self.vectorization == "sync":
            self.refuse(("timeout",), 'it limits actors of "ray" and processes, which vectorization = "async" starts')

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Raise ConfigError, which gives `reason`, where a setting in `names` differs from its default."""
        for name in names:
            value = getattr(self, name)
            if value != DEFAULTS[name]:
                raise ConfigError(f"{name} = {value!r}: {reason}; leave it out")


ACTION_REPEAT = Option("action_repeat", int, limits={"low": 1})
CLIP_ACTIONS = Option("clip_actions", float, many=True, optional=True, limits={"bounds": True})


def checked_clip(clip_actions: Any) -> tuple[float, float] | None:
    """Return the bounds (low, high) of actions from `clip_actions`: a pair, or one number x for (-x, x).

    None is returned for None. Raises ConfigError for anything else.
    """
    checked = check_value(CLIP_ACTIONS, clip_actions)
    return None if checked is None else tuple(checked)


def checked_metrics(info_metrics: Any) -> tuple[str, ...] | None:
    """Return the names of the entries of `info` that are logged, as a tuple; None for None.

    Raises ConfigError for anything but a list or tuple of names; one name alone would be read as a list of letters.
    """
    if info_metrics is None:
        return None
    if isinstance(info_metrics, str):
        raise ConfigError(
            f'info_metrics = {info_metrics!r}: must be a list of names; nearest valid value: ["{info_metrics}"]'
        )
    return tuple(check_value(Option("info_metrics", str, many=True), info_metrics))


def checked_num_envs(num_envs: Any) -> int:
    """Return the number of environments as an int; ConfigError if it is no whole number of at least 1."""
    whole = int(num_envs) if isinstance(num_envs, np.integer) else num_envs
    return check_value(Option("num_envs", int, limits={"low": 1}), whole)  # type: ignore[no-any-return]


NATIVE = ("num_envs", "env_params", "schedule")  # arguments of `make` that `host` does not take by name
DEFAULT = EnvSettings()
DEFAULTS = {field.name: getattr(DEFAULT, field.name) for field in dataclasses.fields(EnvSettings)}
ARGUMENTS = tuple(name for name in DEFAULTS if name not in ("env", "players", "by_name"))
