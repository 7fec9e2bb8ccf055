"""Parts of your own in a run file: an environment and an advantage estimator, named by their import path.

In this directory, `ppax train --trust own_parts own_parts:Corridor --agent.advantage own_parts:OneStep` works too.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array
from ppax.types import EnvReset, EnvStep, Scalar, Targets, number, part, static

import ppax

ITERATIONS = 40
RUN_FILE = """
env = "own_parts:Corridor"
num_envs = 16
num_steps = 32

[env_params]
length = 6                        # a field of the class

[agent]
learning_rate = 3e-3

[agent.advantage]
part = "own_parts:OneStep"
bonus = 0.0                       # a field of the class; --agent.advantage.bonus 0.1 on the command line

[agent.optimizer]
part = "optax:lion"               # any optimiser of optax
b1 = 0.8
"""


class State(NamedTuple):
    """State of the environment."""

    place: Array  # []
    time: Array  # []


@part
class Corridor:
    """Corridor with a reward of 1 at its right end; an episode lasts four times its length at most."""

    length: int = static("places", default=4, low=2)
    observation_space = spaces.Box(0.0, 1.0, (1,))
    action_space = spaces.Discrete(2)
    num_agents = None  # one agent, without an agent axis

    def reset(self, key):
        """Start at the left end."""
        return self._seen(EnvReset, State(jnp.int32(0), jnp.int32(0)))

    def step(self, state, action, key):
        """Go left or right."""
        place = jnp.clip(state.place + jnp.where(action == 1, 1, -1), 0, self.length - 1)
        arrived, late = place == self.length - 1, state.time + 1 >= 4 * self.length
        return self._seen(EnvStep, State(place, state.time + 1), arrived.astype(jnp.float32), arrived, late & ~arrived)

    def _seen(self, kind, state, *rest):
        return kind(state, (state.place / (self.length - 1)).astype(jnp.float32)[None], *rest)


@part
class OneStep:
    """One-step advantage: r_t + gamma V(s_(t+1)) - V(s_t)."""

    bonus: Scalar = number("added to every reward", default=0.0)

    def __call__(self, steps, next_value, gamma, ratio=None):
        """Targets [T] of one stream."""
        target = steps.reward + self.bonus + jnp.where(steps.terminated, 0.0, gamma * next_value)
        return Targets(target - steps.value, target)


def main():
    """Train as the run file says; return the mean episode length, at best `length` - 1 = 5."""
    sys.path.append(str(Path(__file__).parent))  # a package that is installed needs no such line
    ppax.trust("own_parts")  # a run file imports only what you trust; on the command line: --trust own_parts
    plan = ppax.config.parse(RUN_FILE, Path("run.toml"))
    agent, env, run = ppax.config.build(plan)
    state = ppax.start(agent, env, run.num_steps, jax.random.key(0))
    state = jax.jit(ppax.train)(agent, env, state, ITERATIONS).state
    length = ppax.evaluate(agent, env, state.learner, jax.random.key(1), 64).mean_length
    print(f"the way through the corridor takes {length:.1f} steps")
    return length


if __name__ == "__main__":
    main()
