"""Small Gymnasium environments; one of them also as a native environment."""

import os
import sys
import time
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, part

STATES, ACTIONS, LIMIT, FEATURES = 12, 3, 6, 4
RNG = np.random.default_rng(0)
NEXT = RNG.integers(0, STATES, (STATES, ACTIONS))
REWARD = RNG.normal(size=(STATES, ACTIONS)).astype(np.float32)
DEADLY = np.arange(STATES) < 2  # terminal states
LOOKS = RNG.normal(size=(STATES, FEATURES)).astype(np.float32)
BOX = spaces.Box(-np.inf, np.inf, (FEATURES + 1,), np.float32)


class Maze(gymnasium.Env):
    """Random MDP: terminates in a deadly state, is truncated after `LIMIT` steps."""

    observation_space = BOX
    action_space = spaces.Discrete(ACTIONS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = int(self.np_random.integers(2, STATES)), 0
        return self._obs(), {}

    def step(self, action):
        reward = REWARD[self.state, action]
        self.state, self.time = NEXT[self.state, action], self.time + 1
        dead = bool(DEADLY[self.state])
        return self._obs(), float(reward), dead, self.time >= LIMIT and not dead, {}

    def _obs(self):
        return np.append(LOOKS[self.state], np.float32(self.time / LIMIT))


class Where(NamedTuple):
    state: Array
    time: Array


@part
class NativeMaze:
    """Native version of `Maze`."""

    observation_space = BOX
    action_space = spaces.Discrete(ACTIONS)
    num_agents = None

    def reset(self, key):
        where = Where(jax.random.randint(key, (), 2, STATES), jnp.int32(0))
        return EnvReset(where, self._obs(where))

    def step(self, where, action, key):
        reward = jnp.asarray(REWARD)[where.state, action]
        where = Where(jnp.asarray(NEXT)[where.state, action].astype(jnp.int32), where.time + 1)
        dead = jnp.asarray(DEADLY)[where.state]
        return EnvStep(where, self._obs(where), reward, dead, (where.time >= LIMIT) & ~dead)

    def _obs(self, where):
        return jnp.append(jnp.asarray(LOOKS)[where.state], where.time.astype(jnp.float32) / LIMIT)


class Spaces(gymnasium.Env):
    """Environment with given spaces: random observations; terminates after three steps; checks its actions."""

    def __init__(self, observation_space, action_space, mask=None):
        self.observation_space, self.action_space, self.mask = observation_space, action_space, mask

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self._see()

    def step(self, action):
        assert self.action_space.contains(action), (action, self.action_space)
        self.time += 1
        obs, info = self._see()
        return obs, 1.0, self.time == 3, False, info

    def _see(self):
        return self.observation_space.sample(), {} if self.mask is None else {"action_mask": self.mask}


class Trouble(gymnasium.Env):
    """Environment that in step 5 raises, exits, hangs or returns NaN."""

    observation_space = BOX
    action_space = spaces.Discrete(ACTIONS)

    def __init__(self, kind):
        self.kind, self.time = kind, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(FEATURES + 1, np.float32), {}

    def step(self, action):
        self.time += 1
        obs, reward = np.zeros(FEATURES + 1, np.float32), 0.0
        if self.time == 5:
            if self.kind == "raise":
                raise ValueError("the wheel fell off")
            if self.kind == "die":
                os._exit(7)
            if self.kind == "hang":
                time.sleep(1000)
            obs = obs + np.nan if self.kind == "nan observation" else obs
            reward = np.nan if self.kind == "nan reward" else reward
        return obs, reward, False, False, {}


class DrawnMaze(Maze):
    """Maze rendered as a uniform grey that depends on state and time."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        assert self.render_mode == "rgb_array"
        return np.full((6, 8, 3), 10 * self.state + self.time, np.uint8)


class SleepyMaze(Maze):
    """Maze whose steps take a random time."""

    def step(self, action):
        time.sleep(0.01 * np.random.default_rng().random())
        return super().step(action)


class Board(Maze):
    """Maze in which some actions are forbidden, and all after an episode's end; it counts forbidden actions taken.

    `when`: calls that return a mask, "reset", "step" or both; `wrap` converts action and mask to another space.
    """

    forbidden = 0

    def __init__(self, when=("reset", "step"), wrap=lambda x: x, unwrap=lambda x: x, action_space=Maze.action_space):
        self.when, self.wrap, self.unwrap, self.action_space = when, wrap, unwrap, action_space

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, self._info("reset", over=False)

    def step(self, action):
        Board.forbidden += not self.mask[self.unwrap(action)]
        obs, reward, terminated, truncated, _ = super().step(self.unwrap(action))
        return obs, reward, terminated, truncated, self._info("step", terminated or truncated)

    def _info(self, verb, over):
        self.mask = np.zeros(ACTIONS, np.int8) if over else np.roll(np.array([1, 0, 1], np.int8), self.state)
        return {"action_mask": self.wrap(self.mask)} if verb in self.when else {}


class Late(Maze):
    """Maze whose `step` result is passed through `change` from its fifth step on."""

    def __init__(self, change):
        self.change, self.steps = change, 0

    def step(self, action):
        self.steps += 1
        out = super().step(action)
        return self.change(out) if self.steps >= 5 else out


class Quits(Maze):
    """Maze that calls `sys.exit` in its constructor, in `reset` or in `step`."""

    def __init__(self, where, after=0):
        self.where, self.left = where, after
        self._leave("make")

    def reset(self, **options):
        self._leave("reset")
        return super().reset(**options)

    def step(self, action):
        self._leave("step")
        return super().step(action)

    def _leave(self, where):
        self.left -= where == self.where
        if where == self.where and self.left < 0:
            sys.exit(0)


class Spoilt(Maze):
    """Maze with NaN in its first observations or in the final ones."""

    def __init__(self, when):
        self.when, self.resets = when, 0

    def reset(self, **options):
        self.resets += 1
        obs, info = super().reset(**options)
        return (obs * np.nan if self.when == "reset" and self.resets > 1 else obs), info

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return (obs * np.nan if self.when == "end" and truncated else obs), reward, terminated, truncated, info


class Picky(Trouble):
    """Environment with a Box action that raises for NaN; its observations are NaN in step 5."""

    action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self):
        super().__init__("nan observation")

    def step(self, action):
        assert np.isfinite(action).all(), "an action that is not finite"
        return super().step(action)
