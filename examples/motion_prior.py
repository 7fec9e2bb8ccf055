"""Adversarial motion prior: a swimmer keeps a commanded speed, and moves in the waves of recorded swimmers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from ppax.types import EnvReset, EnvStep, Scalar, number, part

import ppax
from ppax.envs import TimeLimit, VectorEnv

ITERATIONS = 200
HEIGHT, WAVE, DT = 0.5, 2.0, 0.1  # the recorded path: y = HEIGHT sin(WAVE x)


class State(NamedTuple):
    """Position across the lane, velocity, and the speed that is commanded in this episode."""

    y: Array  # []
    velocity: Array  # [2] along and across the lane
    command: Array  # []


@part
class Swimmer:
    """Swimmer who is rewarded for a commanded speed along a lane, by whichever motion; it never terminates."""

    push: Scalar = number("largest acceleration", default=8.0, low=0.0)

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)  # y, velocity along and across, command
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    num_agents = None

    def reset(self, key):
        keys = jax.random.split(key, 3)
        command = jax.random.uniform(keys[0], minval=0.5, maxval=1.5)
        y = jax.random.uniform(keys[1], minval=-HEIGHT, maxval=HEIGHT)
        state = State(y, jnp.stack([command, jax.random.uniform(keys[2], minval=-1.0, maxval=1.0)]), command)
        return EnvReset(state, self._observe(state))

    def step(self, state, action, key):
        velocity = jnp.clip(state.velocity + self.push * DT * action, -3.0, 3.0)
        y = jnp.clip(state.y + DT * velocity[1], -1.0, 1.0)  # the sides of the lane
        state = State(y, velocity, state.command)
        reward = jnp.exp(-4.0 * jnp.square(velocity[0] - state.command))
        none = jnp.zeros((), bool)
        return EnvStep(state, self._observe(state), reward.astype(jnp.float32), none, none)

    def _observe(self, state):
        return jnp.stack([state.y, *state.velocity, state.command])


def recorded(episodes: int = 50, steps: int = 100) -> dict[str, np.ndarray]:
    """Motions of swimmers of different speeds, as y and velocity: no commands, no actions, no rewards."""
    rng = np.random.default_rng(0)
    speed, begin = rng.uniform(0.5, 1.5, (episodes, 1)), rng.uniform(0.0, np.pi, (episodes, 1))
    phase = WAVE * (begin + DT * speed * np.arange(steps))
    rows = [HEIGHT * np.sin(phase), np.broadcast_to(speed, phase.shape), HEIGHT * WAVE * speed * np.cos(phase)]
    ends = np.zeros((episodes, steps), bool)
    ends[:, -1] = True
    return {
        "observations": np.stack(rows, axis=-1).reshape(-1, 3),
        "terminations": np.zeros(ends.size, bool),
        "truncations": ends.ravel(),
    }


def motion(run) -> tuple[float, float]:
    """Return the mean reward of the task, and how far motions are from the recorded path: 0 on it, 1 straight ahead."""
    policy, steps = run.policy(), 200
    env = VectorEnv(TimeLimit(Swimmer(), steps), 64)
    path = ppax.trajectory(policy.agent, env, policy.learner, steps, jax.random.key(1))
    y, along, across = np.moveaxis(np.asarray(path.obs)[steps // 2 :], -1, 0)[:3]
    circle = (y / HEIGHT) ** 2 + (across / (HEIGHT * WAVE * np.maximum(np.abs(along), 0.1))) ** 2
    return float(np.asarray(path.reward)[steps // 2 :].mean()), float(np.abs(circle - 1.0).mean())


def train(extensions=(), seed: int = 0, iterations: int = ITERATIONS):
    """Train a swimmer with these extensions; return the run."""
    env = VectorEnv(TimeLimit(Swimmer(), 200), 64)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, normalize_obs=True, extensions=extensions)
    return ppax.fit(agent, env, iterations * 64 * 64, num_steps=64, seed=seed, log=ppax.Log(console=False))


def main() -> dict[str, tuple[float, float]]:
    """Train a swimmer with and one without the motion prior; print and return reward and distance from the motion."""
    env = VectorEnv(TimeLimit(Swimmer(), 200), 64)
    prior = ppax.imitation.motion_prior(env, recorded(), entries=("0:3",))  # all but the command
    found = {"without": motion(train()), "with": motion(train((prior,)))}
    for name, (reward, distance) in found.items():
        print(f"{name} motion prior: reward {reward:.2f} of 1, distance from the recorded motion {distance:.2f}")
    return found


if __name__ == "__main__":
    main()
