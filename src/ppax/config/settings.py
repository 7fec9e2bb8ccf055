"""The settings of a run beside its agent: the fields of run files."""

from __future__ import annotations

import dataclasses

from ppax.agents.opponents import Pool
from ppax.config import group_tables
from ppax.envs import VECTORIZATIONS
from ppax.options import Config
from ppax.types import static

NO_POOL = Pool()


@dataclasses.dataclass(frozen=True)
class Log:
    """What is recorded while a run trains."""

    every: int | None = static(
        "iterations between log rows; by default about 1 % of the run, on the host checkpoint_seconds at most",
        default=None,
        low=1,
        high=2**31 - 1,
    )
    checkpoint_seconds: float = static("seconds between checkpoints, at log rows", default=30.0, low=0.0)
    tensorboard: bool = static("also write TensorBoard event files", default=False)
    console: bool = static("show progress", default=True)


@dataclasses.dataclass(frozen=True)
class EvalSettings:
    """How the trained policy is judged."""

    episodes: int = static("whole episodes, on environments of their own", default=128, low=1)
    deterministic: bool = static("the most likely action; otherwise actions are sampled", default=True)
    env_params: Config = dataclasses.field(default_factory=dict)  # beside those of training, or in their place


@dataclasses.dataclass(frozen=True)
class BestSettings:
    """Which policy is kept beside the last one."""

    metric: str | None = static(
        "keep the policy that was best by this metric at a log row; by default none", default=None
    )
    mode: str = static("whether high or low is good", default="max", choices=("max", "min"))


@dataclasses.dataclass(frozen=True)
class Run:
    """A whole run, beside its agent."""

    env: str = static("environment: a built-in name, or suite/id", default="CartPole-v1")
    num_envs: int = static("environments stepped together", default=64, low=1)
    num_steps: int = static("steps of every environment in one rollout", default=128, low=1)
    total_steps: int = static(
        "steps to train on, of every agent of all environments, steps that only reset an environment counted too; "
        "rounded up to whole rollouts",
        default=500_000,
        low=1,
    )
    seed: int = static("of everything random", default=0, low=0, high=2**64 - 1)
    action_repeat: int = static("times that each action is taken; they count as one step", default=1, low=1)
    vectorization: str = static(
        "host environments: sync, in this process, or async, in worker processes",
        default="sync",
        choices=VECTORIZATIONS,
    )
    env_params: Config = dataclasses.field(default_factory=dict)  # the environment's own numbers, as `make` has them
    iterations_per_env_reset: int | None = static(
        "iterations after which all environments begin anew, episodes truncated; none, 0 and below: only at first",
        default=None,
        low=-(2**31),
        high=2**31 - 1,
    )
    agent_ids: bool = static("agents see who of them they are", default=False)
    central_critic: bool = static("the critic sees what all agents see; actors do not", default=False)
    agents: str = static(
        f"those that are alike: {group_tables.AGENTS}",
        default="shared",
        choices=group_tables.SHARING,
    )
    stop: str | None = static(
        'when to stop early, as "episode_return >= 475 or episode_return stops rising for 20"', default=None
    )
    best: BestSettings = BestSettings()
    self_play: Pool = NO_POOL
    log: Log = Log()
    eval: EvalSettings = EvalSettings()
