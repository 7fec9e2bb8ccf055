"""Play a policy in one environment and look at it: pictures of whole episodes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from ppax.collect import start_actor
from ppax.envs.rendering import render
from ppax.envs.vector import VectorEnv
from ppax.evaluate import act_and_step
from ppax.multi_agent import Agent
from ppax.types import Key, LearnerState


class Played(NamedTuple):
    """Pictures of episodes, one after the other, and what each agent earned in each of them."""

    frames: list[np.ndarray]  # [H, W, 3] each, the first and the last state of every episode included
    returns: np.ndarray  # [episodes, A]
    lengths: np.ndarray  # [episodes] in steps
    finished: bool  # False: `max_steps` came before the last episode's end


def play(
    agent: Agent,
    env: VectorEnv,
    learner: LearnerState,
    key: Key,
    episodes: int = 1,
    deterministic: bool = True,
    max_steps: int = 2000,
) -> Played:
    """Play `episodes` episodes in one environment, at most `max_steps` steps together, and draw every state.

    Raises ConfigError where the environment cannot be drawn.
    """
    env = dataclasses.replace(env, num_envs=1)
    start_key, run_key = jax.random.split(key)
    actor = jax.jit(start_actor)(agent, env, start_key)
    step = jax.jit(act_and_step, static_argnames="deterministic")
    frames, returns, lengths = [_picture(env, actor.env_state.env)], [np.zeros(env.num_streams)], [0]
    for now in range(max_steps):
        actor, out = step(agent, env, learner, actor, deterministic, jax.random.fold_in(run_key, now))
        frames.append(_picture(env, actor.env_state.env))
        if np.any(out.first):  # this step only began the next episode
            returns.append(np.zeros(env.num_streams))
            lengths.append(0)
            continue
        returns[-1] = returns[-1] + np.asarray(out.reward)
        lengths[-1] += 1
        if np.all(actor.env_state.ended) and len(lengths) == episodes:
            return Played(frames, np.stack(returns), np.array(lengths), True)
    return Played(frames, np.stack(returns), np.array(lengths), False)


def _picture(env: VectorEnv, states: object) -> np.ndarray:
    return render(env.env, jax.tree.map(lambda x: x[0], states))
