"""Memory task: a cue, seen only at the start of a corridor, tells whether to turn left or right at its end.

After the T-maze of Bakker, "Reinforcement Learning with Long Short-Term Memory", NeurIPS 2001; here the agent walks
through the corridor whatever its actions. The best mean return is 0 without memory and 1 with it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, Scalar, number, part
from ppax.envs.builtin.drawing import AMBER, BLUE, GREY, Canvas


class CueState(NamedTuple):
    """State of the cue corridor: the number of steps walked, and the cue of this episode (0 left, 1 right)."""

    place: Array  # [] int32, steps from the start
    cue: Array  # [] int32, 0 or 1


@part
class CueCorridor:
    """Environment of a corridor, at whose end the agent must turn to the side of a cue seen at the start.

    Observation [2]: the cue (-1 for left or 1 for right at the start, 0 after it), and 1 at the fork, else 0. Actions:
    left, right. Only the action at the fork has an effect: the reward is 1 for the side of the cue and -1 for the
    other, and the episode terminates. All other rewards are 0.
    """

    length: Scalar = number("steps from the cue to the fork", default=10, low=1)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: Box [2], the cue and whether the agent is at the fork."""
        return spaces.Box(np.array([-1, 0], np.float32), np.array([1, 1], np.float32))

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: left, right."""
        return spaces.Discrete(2)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode: at the cue, which is left or right with equal probability."""
        state = CueState(jnp.int32(0), jax.random.bernoulli(key).astype(jnp.int32))
        return EnvReset(state, self._observe(state))

    def step(self, state: CueState, action: Array, key: Key) -> EnvStep:
        """Return the result of walking one step, or, at the fork, of turning, which terminates the episode."""
        over = state.place >= self.length
        reward = jnp.where(over, jnp.where(action == state.cue, 1.0, -1.0), 0.0)
        state = CueState(state.place + 1, state.cue)
        return EnvStep(state, self._observe(state), reward.astype(jnp.float32), over, jnp.zeros((), bool))

    def render(self, state: CueState) -> np.ndarray:
        """Return a picture [H, W, 3] of the corridor, the agent, and the cue (at the top for right, else below)."""
        walked = min(int(state.place) / int(self.length), 1.0)
        canvas = Canvas((-0.1, -0.2), (1.1, 0.2), paper=GREY)
        canvas.line((0.0, 0.0), (1.0, 0.0), (255, 255, 255), 12.0)
        canvas.line((1.0, -0.12), (1.0, 0.12), (255, 255, 255), 12.0)
        canvas.disc((1.0, 0.12 if int(state.cue) else -0.12), 0.03, AMBER)
        canvas.disc((walked, 0.0), 0.03, BLUE)
        return canvas.image()

    def _observe(self, state: CueState) -> Array:
        cue = jnp.where(state.place == 0, 2.0 * state.cue - 1.0, 0.0)
        return jnp.stack([cue, (state.place == self.length).astype(jnp.float32)])
