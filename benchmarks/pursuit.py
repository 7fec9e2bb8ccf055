"""Hunters of Pursuit-3 against a prey that follows a fixed rule: how often two slow hunters can catch a fast prey.

    python benchmarks/pursuit.py          # about two minutes on two cores

jaxagents reports that its two hunters (speed 1, capture distance 0.1) catch its learning prey (speed 3) in 6 of 6
recorded episodes of two seconds. Whether a prey is caught depends on the prey as much as on the hunters. Here the prey
follows a rule of twenty lines, and the hunters learn against this prey alone: the share of caught prey that they reach
is a bound for hunters against any prey that plays as well.
"""

from __future__ import annotations

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

import ppax
from ppax.core.types import EnvReset, EnvStep, Key, part
from ppax.envs import TimeLimit, VectorEnv
from ppax.envs.builtin import Pursuit
from ppax.envs.builtin.pursuit import PursuitState
from report import Report

STEPS, ENVS, ITERATIONS, EPISODES = 64, 128, 200, 512
LIMIT = 200  # steps of an episode, of 0.01 s
ANGLES = np.linspace(-np.pi, np.pi, 48, endpoint=False)
TIMES = np.linspace(0.02, 0.4, 20)  # s
MARGIN = 0.13  # distance at which a way counts as safe: the capture distance, and three steps of a hunter


def flight(position: Array, speed: Array) -> Array:
    """Return the heading of the prey, given all positions [A, 2], the prey's first.

    Of straight ways of up to 0.4 s the prey takes the one with the best end: farthest from where a hunter that starts
    now could be by then, with no point on the way that a hunter reaches first.
    """
    direction = jnp.stack([jnp.cos(ANGLES), jnp.sin(ANGLES)], axis=-1)
    places = jnp.clip(position[0] + speed * TIMES[:, None, None] * direction, 0.0, 1.0)  # [times, angles, 2]
    distance = jnp.linalg.norm(places[:, :, None] - position[1:], axis=-1) - TIMES[:, None, None]
    gap = distance.min(axis=-1)  # [times, angles] to the nearest hunter, if it runs there
    smallest = jax.lax.cummin(gap, axis=0)
    best = (10.0 * jnp.minimum(smallest, MARGIN) + gap).max(axis=0).argmax()
    return jnp.asarray(ANGLES, jnp.float32)[best]


@part
class Hunt:
    """Pursuit as an environment of the hunters alone: the prey flees by `flight`."""

    pursuit: Pursuit = dataclasses.field(default_factory=lambda: Pursuit(prey_speed=3.0, radius=0.1, num_predators=2))
    action_space = spaces.Box(-np.pi, np.pi, (1,), np.float32)

    @property
    def num_agents(self) -> int:
        return self.pursuit.num_predators

    @property
    def observation_space(self) -> spaces.Box:
        return self.pursuit.observation_space

    def reset(self, key: Key) -> EnvReset:
        start = self.pursuit.reset(key)
        return EnvReset(start.state, start.obs[1:])

    def step(self, state: PursuitState, action: Array, key: Key) -> EnvStep:
        prey = flight(state.position, self.pursuit.prey_speed)
        out = self.pursuit.step(state, jnp.concatenate([prey.reshape(1, 1), action]), key)
        return EnvStep(out.state, out.obs[1:], out.reward[1:], out.terminated[1:], out.truncated[1:])


def main() -> None:
    """Train hunters, and print how often they catch the prey, before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    options = parser.parse_args()
    env = VectorEnv(TimeLimit(Hunt(), LIMIT), ENVS)
    network = ppax.networks.network(env, hidden=(128, 128))
    agent = ppax.PPO(network, learning_rate=1e-3, normalize_obs=True, normalize_reward=True)
    state = ppax.start(agent, env, STEPS, jax.random.key(0))

    def caught(state: ppax.TrainState) -> float:
        played = ppax.evaluate(agent, env, state.learner, jax.random.key(1), EPISODES, deterministic=False)
        return float((played.lengths[:: env.num_agents] < LIMIT).mean())

    shares = {0: caught(state)}
    train = jax.jit(ppax.train, static_argnames="num_iterations")
    for done in np.linspace(0, options.iterations, 5, dtype=int)[1:]:
        state, _ = train(agent, env, state, num_iterations=options.iterations // 4)
        shares[int(done) * STEPS * ENVS * env.num_agents] = caught(state)
    for steps, share in shares.items():
        print(f"{steps:>10,} steps of the hunters: {share:.1%} of {EPISODES // env.num_agents} prey caught")
    report = Report("pursuit", "Trained hunters against a prey that flees by a fixed rule", {"environments": ENVS})
    report.save(caught={str(steps): share for steps, share in shares.items()})


if __name__ == "__main__":
    main()
