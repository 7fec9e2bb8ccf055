"""Play a policy in one environment and render whole episodes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ppax.core.protocols import Agent, Scene
from ppax.core.types import Key, LearnerState
from ppax.envs import Env
from ppax.training.backends import backend_of


class Played(NamedTuple):
    """Rendered episodes, one after the other, with the return of each agent."""

    frames: list[np.ndarray]  # [H, W, 3] each; one for every state, first and final ones included
    returns: np.ndarray  # [episodes, A]
    lengths: np.ndarray  # [episodes] in steps
    finished: bool  # False: the last episode had not ended after `max_steps` or `max_seconds`
    names: tuple[str, ...] = ()  # [A] of the agents; () for one

    def returns_text(self, episode: int) -> str:
        """Return the return of each agent in one episode, with its name."""
        return named_returns(self.names, self.returns[episode])


def named_returns(names: Sequence[str], returns: np.ndarray) -> str:
    """Return the returns [A] of one episode as text, each with the name of its agent; () for one agent."""
    words = [f"{name} " for name in names] or [""]
    return ", ".join(f"{word}{x:.2f}" for word, x in zip(words, returns, strict=True))


def play(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    key: Key,
    episodes: int = 1,
    deterministic: bool = True,
    max_steps: int = 2000,
    max_seconds: float = math.inf,
) -> Played:
    """Play `episodes` episodes in one environment, at most `max_steps` steps in all, and render every state.

    After `max_seconds` seconds no further step is played.

    A host environment is constructed again with `render_mode = "rgb_array"`. Raises ConfigError where the environment
    cannot be rendered.
    """
    with backend_of(env).scene(agent, learner, key, deterministic) as scene:
        return _film(scene, env.num_agents, episodes, max_steps, max_seconds)._replace(names=env.agent_names)


def _film(scene: Scene, agents: int, episodes: int, max_steps: int, max_seconds: float) -> Played:
    begin = time.monotonic()
    frames, returns, lengths, ended = [scene.picture()], [np.zeros(agents)], [0], False
    for t in range(max_steps):
        result = scene.move(t)
        frames.append(scene.picture())
        if ended:  # this step was the autoreset
            returns.append(np.zeros(agents))
            lengths.append(0)
        returns[-1] = returns[-1] + result.reward
        lengths[-1] += result.counts
        ended = result.ended
        if (ended and len(lengths) == episodes) or time.monotonic() - begin > max_seconds:
            break
    return Played(frames, np.stack(returns), np.array(lengths), ended and len(lengths) == episodes)
