"""Evaluate a policy over whole episodes, on separate environments and keys, with frozen normalization statistics."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ppax.agents.player_names import agent_columns
from ppax.envs import Env
from ppax.program.backends import backend_of
from ppax.protocols import Agent
from ppax.types import Key, LearnerState


class Evaluation(NamedTuple):
    """Undiscounted, unscaled returns and lengths of whole episodes; the agents of one environment are adjacent."""

    returns: np.ndarray  # [episodes]
    lengths: np.ndarray  # [episodes]
    finished: np.ndarray  # [episodes] False: cut at `max_steps`, and left out of the means
    num_agents: int = 1  # agents per environment
    sizes: tuple[tuple[str, int], ...] = ()  # name and number of agents of each group
    agents: np.ndarray | None = None  # [episodes] index of the agent; None: 0, 1, ..., repeating
    metrics: Mapping[str, np.ndarray] = {}  # [episodes] the environment's metrics at each episode's last step
    unplayed: int = 0  # host environments only: episodes not played, as an earlier one was cut at `max_steps`

    def __repr__(self) -> str:
        done = int(np.sum(self.finished))
        left = f", unfinished={len(self.finished) - done}" if done < len(self.finished) else ""
        returns = f"mean_return={self.mean_return:.2f}, std_return={self.std_return:.2f}"
        own = "".join(f", {name}={mean:.3g}" for name, mean in self.mean_metrics.items())
        return f"Evaluation({returns}, mean_length={self.mean_length:.1f}{own}, episodes={done}{left})"

    @property
    def by_agent(self) -> dict[str, Evaluation]:
        """Evaluation of each agent and group, by its name in the logs; {} for environments with one agent."""
        agent = np.arange(len(self.returns)) % self.num_agents if self.agents is None else self.agents
        every = {name: np.isin(agent, places) for name, places in agent_columns(self.num_agents, self.sizes).items()}
        rows = {name: (self.returns[own], self.lengths[own], self.finished[own]) for name, own in every.items()}
        metrics = {name: {key: x[own] for key, x in self.metrics.items()} for name, own in every.items()}
        return {name: Evaluation(*row, metrics=metrics[name]) for name, row in rows.items()}

    @property
    def mean_return(self) -> float:
        """Mean over the finished episodes; NaN where none finished."""
        return float(self.returns[self.finished].mean()) if self.finished.any() else float("nan")

    @property
    def std_return(self) -> float:
        """Population standard deviation over the finished episodes."""
        return float(self.returns[self.finished].std()) if self.finished.any() else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean length of the finished episodes, in steps."""
        return float(self.lengths[self.finished].mean()) if self.finished.any() else float("nan")

    @property
    def mean_metrics(self) -> dict[str, float]:
        """Mean of each of the environment's metrics over the finished episodes, as `is_success`."""
        kept = self.finished if self.finished.any() else None
        return {name: float(x[kept].mean()) if kept is not None else float("nan") for name, x in self.metrics.items()}


def evaluate(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    key: Key,
    episodes: int = 128,
    deterministic: bool = True,
    max_steps: int = 100_000,
) -> Evaluation:
    """Play `episodes` whole episodes and return the return and length of each.

    `deterministic` takes the mode of the action distribution; otherwise actions are sampled. The state of the training
    run stays as it is: its environments, keys and statistics. An episode is cut after `max_steps` steps.

    Native environments: one per episode. Host environments: as many new ones as the run has, closed afterwards. A
    vector environment passed in by the user cannot be copied and is used itself; training then resets it. Raises
    ConfigError where host environments are given an agent that they cannot have (`Groups`, `SelfPlay`).
    """
    out = backend_of(env).play_episodes(agent, learner, key, episodes, deterministic, max_steps)
    if out.unplayed:
        warnings.warn(
            f"{out.unplayed} of {episodes} episodes were not played: an earlier episode did not end, or "
            f"an agent did not appear, within max_steps = {max_steps}",
            stacklevel=2,
        )
    return Evaluation(
        *out[:3], env.num_agents, env.sizes, agents=out.agents, metrics=out.metrics, unplayed=out.unplayed
    )
