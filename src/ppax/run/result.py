"""What `fit` and `resume` give back, and how they end where they cannot go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax

from ppax.agents.multi_agent import Agent
from ppax.arrays import counter
from ppax.envs import Env, other_params
from ppax.evaluation import Evaluation, evaluate
from ppax.loggers import Row
from ppax.options import Config
from ppax.run.conditions import KeepBest
from ppax.storage.cache import kept_programs
from ppax.training import make_key
from ppax.types import TrainState

EVALUATION = 2**31 - 1  # folded into a seed: evaluation shares no randomness with the training of that seed


class Interrupted(Exception):
    """The run was asked to stop; it has saved itself and can be resumed."""


class NumericalError(Exception):
    """Rollout, gradient or weights of an iteration were not finite; the state before it was kept."""


@dataclasses.dataclass(repr=False)
class TrainedRun:
    """What `fit` and `resume` give back."""

    agent: Agent
    env: Env
    state: TrainState
    history: list[Row]  # the rows logged by this call, as in metrics.jsonl
    run_dir: Path | None
    started_at: float = 0.0  # Unix time when the first chunk began
    compile_seconds: float = 0.0
    train_seconds: float = 0.0  # of this call, without compilation
    steps_per_second: float = 0.0  # of this call, without compilation
    stopped: str = ""  # which condition or callback ended it, and at what; "" where the plan was carried out
    best: KeepBest | None = None  # the best policy so far, where `best` says by which metric
    unsaved: str = ""  # why the last checkpoint could not be written; "" where it was
    eval_env_params: Config = dataclasses.field(default_factory=dict)  # of the run's evaluation

    def __repr__(self) -> str:
        last = self.history[-1]["episode_return"] if self.history else float("nan")
        numbers = f"{self.env_steps:,} env-steps, {int(self.state.iteration):,} iterations"
        speed = f", {self.train_seconds:.1f} s" if self.history else ""
        where = f", run_dir={str(self.run_dir)!r}" if self.run_dir else ""
        ended = f", stopped={self.stopped!r}" if self.stopped else ""
        name = self.env.name or type(self.env).__name__
        return f"TrainedRun({name}: {numbers}, last episode_return {last:.2f}{speed}{where}{ended})"

    @property
    def env_steps(self) -> int:
        """Valid steps of all streams since the run began."""
        return counter.to_int(self.state.env_steps)

    @property
    def total_steps(self) -> int:
        """Steps of all streams since the run began, resets and absent agents included: as `total_steps` of a run."""
        return int(self.state.iteration) * self.state.num_steps * self.env.num_streams

    def steps_done(self) -> str:
        """Valid steps in words, and how they differ from `total_steps` where they do."""
        agents = f" of {self.env.num_agents} agents" if self.env.num_agents > 1 else ""
        absent = ", or in which an agent was absent" if agents else ""
        idle = self.total_steps - self.env_steps
        rest = f" ({self.total_steps:,} of total_steps: {idle:,} only reset an environment{absent})" if idle else ""
        return f"{self.env_steps:,} steps{agents}{rest}"

    def evaluate(self, episodes: int = 128, deterministic: bool = True, seed: int = 0) -> Evaluation:
        """Play whole episodes with the trained policy; the run itself is not touched."""
        key = jax.random.fold_in(make_key(seed), EVALUATION)
        env = other_params(self.env, self.eval_env_params)
        with kept_programs():
            return evaluate(self.agent, env, self.state.learner, key, episodes, deterministic)
