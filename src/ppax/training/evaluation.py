"""Evaluation of a policy over whole episodes, in environments of its own, with frozen normalisation statistics."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ppax.agents.metrics import agent_columns
from ppax.core.options import require_whole
from ppax.core.protocols import Agent, Row, WholeEpisodes
from ppax.core.types import ConfigError, Key, LearnerState, PyTree, Scalar
from ppax.core.unknown_names import refusing_unknown
from ppax.envs import Env, require_native
from ppax.envs import ended as at_end
from ppax.envs.vector import VectorEnv
from ppax.storage.cache import kept_programs
from ppax.training.arguments import require_agent, require_env, require_key, require_learner, require_players
from ppax.training.backends import backend_of
from ppax.training.episodes import PlayedEpisodes, run_episodes
from ppax.training.loop import make_key, require_new_names

# Default lengths at which an episode is cut: in environments whose episodes end, in those that never end, and until it
# is known which they are, as the first episodes of a game may be long
MAX_STEPS, ENDLESS_STEPS, UNKNOWN_STEPS = 100_000, 1_000, 10_000
LONGEST = 2**31 - 1  # largest `max_steps`: compiled programs count steps in 32 bits
EVALUATION = 2**31 - 1  # folded into the key: evaluation and training with the same seed use different random numbers


# Columns of log rows, and the property of an Evaluation that each shows; the environment's metrics come after them
COLUMNS = {
    "eval_return": "mean_return",
    "eval_return_median": "median_return",
    "eval_return_std": "std_return",
    "eval_return_min": "min_return",
    "eval_return_max": "max_return",
    "eval_length": "mean_length",
    "eval_terminated": "terminated_share",
    "eval_truncated": "truncated_share",
    "eval_final_reward": "mean_final_reward",
}


class Evaluation(NamedTuple):
    """Results of whole episodes: their undiscounted, unscaled returns and their lengths, and means of them.

    An episode is one agent's; the episodes of the agents of one environment are adjacent. `names` are the names of an
    environment's agents, in the order of their indices in `agents`. `games` numbers the games, which are the
    environment's episodes: agents that played together have the same number, and -1 is a game of which an agent's
    episode is missing here. None: not known, as in `by_agent`.
    """

    returns: np.ndarray  # [episodes]
    lengths: np.ndarray  # [episodes]
    finished: np.ndarray  # [episodes] False: cut at `max_steps`, which counts as truncated
    terminated: np.ndarray  # [episodes] ended by the environment; all others were truncated
    final_rewards: np.ndarray  # [episodes] reward of the last step
    num_agents: int = 1  # agents per environment
    sizes: tuple[tuple[str, int], ...] = ()  # name and number of agents of each group
    agents: np.ndarray | None = None  # [episodes] index of the agent; None: 0, 1, ..., repeating
    metrics: Mapping[str, np.ndarray] = {}  # [episodes] the environment's metrics at each episode's last step
    names: tuple[str, ...] = ()  # of the agents of an environment, in their order
    games: np.ndarray | None = None  # [episodes] number of the game, see Outcome
    unplayed: int = 0  # host environments only: episodes not played, as their agent did not appear

    def __repr__(self) -> str:
        done, cut = int(self.counted.sum()), self.cut
        left = f", cut={cut}" if cut else ""
        returns = f"mean_return={self.mean_return:.2f}, std_return={self.std_return:.2f}"
        own = "".join(f", {name}={mean:.3g}" for name, mean in self.mean_metrics.items())
        return f"Evaluation({returns}, mean_length={self.mean_length:.1f}{own}, episodes={done}{left})"

    @property
    def counted(self) -> np.ndarray:
        """Mask of the episodes that count in the means, [episodes]: all but those of agents that did not appear."""
        return self.finished | (self.lengths > 0)

    @property
    def cut(self) -> int:
        """Number of episodes cut after `max_steps` steps; they count in the means, with their returns so far."""
        return int((self.counted & ~self.finished).sum())

    @property
    def truncated(self) -> np.ndarray:
        """Mask of the episodes that a time limit or `max_steps` has cut, [episodes]."""
        return self.counted & ~self.terminated

    @property
    def by_agent(self) -> dict[str, Evaluation]:
        """Results of each agent and each group of agents, by its name in the logs; {} where there is one agent."""
        agent = np.arange(len(self.returns)) % self.num_agents if self.agents is None else self.agents
        every = {
            name: np.isin(agent, places)
            for name, places in agent_columns(self.num_agents, self.sizes, self.names).items()
        }
        return {name: self._of(own) for name, own in every.items()}

    @property
    def mean_return(self) -> float:
        """Mean return of the episodes; NaN where none was played."""
        return self._mean(self.returns)

    @property
    def median_return(self) -> float:
        """Median return of the episodes; NaN where none was played."""
        return float(np.median(self.returns[self.counted])) if self.counted.any() else float("nan")

    @property
    def std_return(self) -> float:
        """Population standard deviation of the episodes' returns; NaN where none was played."""
        return float(self.returns[self.counted].std()) if self.counted.any() else float("nan")

    @property
    def min_return(self) -> float:
        """Smallest return of an episode; NaN where none was played."""
        return float(self.returns[self.counted].min()) if self.counted.any() else float("nan")

    @property
    def max_return(self) -> float:
        """Largest return of an episode; NaN where none was played."""
        return float(self.returns[self.counted].max()) if self.counted.any() else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean length of the episodes, in steps; NaN where none was played."""
        return self._mean(self.lengths)

    @property
    def terminated_share(self) -> float:
        """Share of the episodes that ended in a terminal state; NaN where none was played."""
        return self._mean(self.terminated)

    @property
    def truncated_share(self) -> float:
        """Share of the episodes that were truncated; NaN where none was played."""
        return self._mean(self.truncated)

    @property
    def mean_final_reward(self) -> float:
        """Mean reward of the episodes' last steps; in games with rewards +-1 at the end, wins minus losses.

        NaN where none was played.
        """
        return self._mean(self.final_rewards)

    @property
    def mean_metrics(self) -> dict[str, float]:
        """Mean of each metric of the environment, such as `is_success`, over the episodes that have a value of it.

        The mean is NaN if no episode has a value. On the host only episodes that have ended have values, because `info`
        gives metrics at the end of an episode.
        """
        known = {name: x[self.counted & ~np.isnan(x)] for name, x in self.metrics.items()}
        return {name: float(x.mean()) if len(x) else float("nan") for name, x in known.items()}

    @property
    def scores(self) -> dict[str, Any]:
        """Statistics of the episodes by name, such as "mean_return", "std_return" and "mean_length", as plain numbers.

        Metrics of the environment have their own names; with several agents there is also "mean_return/agent_0" for
        each. A run directory's evaluation.json has the same names. Statistics are NaN where no episode was played.
        """
        return {
            "mean_return": self.mean_return,
            "median_return": self.median_return,
            "std_return": self.std_return,
            "min_return": self.min_return,
            "max_return": self.max_return,
            "mean_length": self.mean_length,
            "terminated": self.terminated_share,
            "truncated": self.truncated_share,
            "final_reward": self.mean_final_reward,
            "episodes": int(self.counted.sum()),
            "cut": self.cut,
            "unplayed": self.unplayed,
            **self.mean_metrics,
            **{f"mean_return/{name}": one.mean_return for name, one in self.by_agent.items()},
        }

    @property
    def columns(self) -> dict[str, float]:
        """Columns of a log row by name: `eval_return` and so on; with several agents also `eval_return/agent_0`."""
        every = {"": self} | {f"/{name}": one for name, one in self.by_agent.items()}
        return {name + suffix: x for suffix, one in every.items() for name, x in one._own_columns().items()}

    def _of(self, own: np.ndarray) -> Evaluation:
        """Return the results of only the episodes where the mask `own` [episodes] is True."""
        returns, lengths, finished = self.returns[own], self.lengths[own], self.finished[own]
        metrics = {name: x[own] for name, x in self.metrics.items()}
        return Evaluation(returns, lengths, finished, self.terminated[own], self.final_rewards[own], metrics=metrics)

    def _own_columns(self) -> dict[str, float]:
        numbers = {name: getattr(self, attribute) for name, attribute in COLUMNS.items()}
        return numbers | {f"eval_{name}": x for name, x in self.mean_metrics.items()}

    def _mean(self, x: np.ndarray) -> float:
        return float(x[self.counted].mean()) if self.counted.any() else float("nan")


def evaluation_key(seed: int) -> Key:
    """Return the random key of evaluations with this seed; it differs from the key of training with the same seed."""
    return jax.random.fold_in(make_key(seed), EVALUATION)


def episode_limit(env: Env, ended: bool | None, period: int = 0, played: int = 0) -> int:
    """Return the default of `max_steps`, the number of steps after which an evaluation cuts an episode.

    `ended` says whether episodes end by themselves. If they do, the default is MAX_STEPS (100,000). If they never end,
    it is `period`, the number of steps between forced resets in training; without forced resets (`period` is 0)
    ENDLESS_STEPS (1,000), or `env.max_horizon` if that is less. If `ended` is None, no episode has ended in the
    `played` steps of training that each environment has made: from ENDLESS_STEPS on these count as episodes that never
    end, before that the default is UNKNOWN_STEPS (10,000).
    """
    if ended is None and played < ENDLESS_STEPS:
        return UNKNOWN_STEPS
    return MAX_STEPS if ended else period or min(ENDLESS_STEPS, env.max_horizon or ENDLESS_STEPS)


def has_ended(row: Row, period: int = 0) -> bool:
    """Return whether a log row has an episode that ended by itself, and not by a forced reset every `period` steps.

    With `period` 0 there are no forced resets.
    """
    # where resets alone end episodes, their mean length is the time between two
    by_resets = period > 0 and row.get("episode_length") == period
    return (row.get("episodes") or 0.0) > 0.0 and not by_resets


class Evaluator:
    """Repeated evaluation of an agent's learners, each over `episodes` whole episodes, with programs that compile once.

    It is a context manager, which closes the environments on the host that it has created. Arguments are as in
    `evaluate`; of `learner` only shapes are read.
    """

    def __init__(
        self,
        agent: Agent,
        env: Env,
        learner: PyTree,
        episodes: int,
        deterministic: bool = True,
    ):
        require_whole(episodes, "episodes")
        self._env, self._episodes = env, episodes
        self._opened = backend_of(env).episodes(agent, learner, episodes, deterministic)

    def __enter__(self) -> Evaluator:
        self._play: WholeEpisodes = self._opened.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def __call__(self, learner: PyTree, key: Key, max_steps: int) -> Evaluation:
        """Return the results of one learner's episodes, cut after `max_steps` steps; equal keys give equal results."""
        out = self._play(learner, key, max_steps)
        require_new_names(out.metrics)
        if out.unplayed:
            warnings.warn(
                f"{out.unplayed} of {self._episodes} episodes were not played: an agent did not appear within "
                f"max_steps = {max_steps}",
                stacklevel=3,
            )
        return Evaluation(
            *out[:5],
            num_agents=self._env.num_agents,
            sizes=self._env.sizes,
            agents=out.agents,
            metrics=out.metrics,
            names=self._env.agent_names,
            games=out.games,
            unplayed=out.unplayed,
        )

    def blank(self) -> Evaluation:
        """Return an Evaluation without episodes, whose means are NaN, for log rows without an evaluation.

        It has the names of all columns that an evaluation adds to a log row.
        """
        require_new_names(self._play.metrics)
        number, flag = np.zeros(0, np.float32), np.zeros(0, bool)
        metrics = dict.fromkeys(self._play.metrics, number)
        return Evaluation(
            number,
            number,
            flag,
            flag,
            number,
            num_agents=self._env.num_agents,
            sizes=self._env.sizes,
            metrics=metrics,
            names=self._env.agent_names,
        )


@refusing_unknown
def evaluate(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    key: Key,
    episodes: int = 128,
    deterministic: bool = True,
    max_steps: int | None = None,
) -> Evaluation:
    """Play `episodes` whole episodes, and return the return and length of each.

    `deterministic` takes the mode of the action distribution; otherwise actions are sampled. The state of the training
    run stays as it is: its environments, keys and statistics. An episode that has not ended after `max_steps` steps is
    cut there and counts as truncated, with its return so far. None is 100,000, or 1,000 in a compiled environment whose
    step never ends an episode.

    Compiled environments are played in parallel, in as many copies as there are episodes. Host environments, which
    Python steps, are created anew, as many as the run has, and closed afterwards. A vector environment passed in by the
    user cannot be copied and is used itself; training then resets it. Raises ConfigError if the environment lacks the
    agents or groups of agents that `agent` requires, and inside `jit` or `vmap`, where `play_episodes` works.
    """
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((agent, env, learner, key, max_steps))):
        raise ConfigError(
            "ppax.evaluate returns numbers on the host and cannot be called inside jit, vmap or scan: write "
            "ppax.play_episodes(agent, env, learner, key, episodes), which returns arrays"
        )
    require_env(env)
    require_agent(agent)
    require_learner(agent, learner)
    require_key(key)
    if max_steps is None:
        max_steps = episode_limit(env, ended=not backend_of(env).endless)
    require_whole(max_steps, "max_steps", high=LONGEST)
    with kept_programs(), Evaluator(agent, env, learner, episodes, deterministic) as evaluator:
        return evaluator(learner, key, max_steps)


@refusing_unknown
def play_episodes(
    agent: Agent,
    env: VectorEnv,
    learner: LearnerState,
    key: Key,
    episodes: int = 128,
    deterministic: bool = True,
    max_steps: Scalar | None = None,
) -> PlayedEpisodes:
    """Return the results of `episodes` whole episodes as JAX arrays: `evaluate` as a pure function.

    It can be called inside `jit`, `vmap` and `scan`. Its arguments are those of `evaluate`, and equal keys give the
    episodes of `evaluate`. Sizes are static: `episodes` and `deterministic` may not be tracers; `max_steps` may. `vmap`
    over learners, keys or agents adds an axis in front of [episodes]. Outside of `jit` each call compiles anew.

    Raises ConfigError for environments on the host, which `evaluate` plays.
    """
    env = at_end(require_native(env, "ppax.play_episodes", "write ppax.evaluate(agent, env, learner, key, episodes)"))
    require_whole(episodes, "episodes")
    require_agent(agent)
    require_players(agent, env)
    require_learner(agent, learner)
    require_key(key)
    if max_steps is None:
        max_steps = episode_limit(env, ended=not backend_of(env).endless)
    elif not isinstance(max_steps, jax.core.Tracer):
        require_whole(max_steps, "max_steps", high=LONGEST)
    return run_episodes(agent, env, learner, key, episodes, deterministic, max_steps)
