"""Tiny runs whose results must not depend on JAX_ENABLE_X64; as a script: run all, write results to a directory."""

import dataclasses
import sys
from functools import partial
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import ppax
from ppax.config import PARTS, Log
from ppax.core.types import EnvReset, EnvStep, part
from ppax.envs import VectorEnv, grouped
from ppax.extensions import RewardSpreading
from ppax.networks import network
from ppax.networks.memories import GRU, NoMemory
from ppax.ppo.critics import TwoHot
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.optimizers import Muon
from support.worlds import QUICK

NONE = NoMemory()
NORMALISED = {"normalize_obs": True, "normalize_reward": True}


@part
class Unpinned:
    """Native environment with JAX's default dtypes: float64 and int64 if 64-bit types are enabled."""

    observation_space = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (2,)), "kind": spaces.Discrete(3)})
    action_space = spaces.Discrete(2)
    num_agents = None

    def reset(self, key):
        return EnvReset(jnp.zeros(()), {"x": jnp.zeros(2), "kind": jnp.argmin(jnp.ones(3))})

    def step(self, state, action, key):
        state = state + 0.25
        seen = {"x": jnp.full(2, state), "kind": jnp.argmax(state < jnp.arange(3.0))}
        return EnvStep(state, seen, action * state, state >= 1.0, jnp.zeros((), bool))


class Wide(gymnasium.Env):
    """Gymnasium environment with float64 observations and actions, and a category."""

    observation_space = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (2,), np.float64), "kind": spaces.Discrete(3)})
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._obs(), {}

    def step(self, action):
        self.time += 1
        return self._obs(), float(action[0]), self.time >= 5, False, {}

    def _obs(self):
        return {"x": np.full(2, self.time / 5), "kind": np.int64(self.time % 3)}


def fitted(agent, env, run_dir=None, steps=64):
    return ppax.fit(agent, env, steps, 0, run_dir, 8, Log(console=False, every=1)).state


def agent_for(env, memory=NONE, **options):
    return ppax.PPO(network(env, hidden=(8,), memory=memory), num_epochs=1, minibatch=Shuffle(2), **options)


def recorded(run_dir):
    """Train a run with a checkpoint."""
    env = ppax.make("Pendulum-v1", 4)
    return fitted(agent_for(env, optimizer=Muon(), **NORMALISED), env, run_dir)


def unpinned():
    env = VectorEnv(Unpinned(), 4)
    return fitted(agent_for(env, critic=TwoHot(), extensions=(RewardSpreading(0.5),)), env)


def host():
    env = ppax.envs.host(Wide, 4)
    return fitted(agent_for(env, GRU(8), seq_len=4, **NORMALISED), env)


def host_in_numpy():
    env = ppax.envs.host(Wide, 4)
    return fitted(agent_for(env, **NORMALISED), env)


def groups():
    env = grouped(ppax.make("Pursuit-3", 4), {"prey": [0], "hunters": [1, 2]})
    agents = {
        "prey": agent_for(env.groups["prey"], GRU(8), seq_len=4),
        "hunters": ppax.Independent(agent_for(env.groups["hunters"], **NORMALISED), 2),
    }
    return fitted(ppax.Groups(agents, env.sizes), env)


RUNS = {run.__name__: run for run in (unpinned, host, host_in_numpy, groups)}


def initial(name):
    """Return the initial state of an agent with a memory; trace one iteration."""
    env = ppax.make("CartPole-v1", 2)
    agent = agent_for(env, PARTS["memory"][name](), seq_len=4)
    state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, 8, jax.random.key(0))
    jax.eval_shape(ppax.train, agent, env, state, 1)
    return state


def numbers(state):
    """Return parameters and counters of a state by name, as NumPy arrays."""
    learned = jax.tree.map(lambda x: x.params, state.learner, is_leaf=lambda x: hasattr(x, "params"))
    leaves, _ = jax.tree_util.tree_flatten_with_path((learned, state.env_steps, state.iteration))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def of_64_bits(state):
    """Return the names of 64-bit leaves of a state, environment states excepted."""
    state = dataclasses.replace(state, actor=state.actor._replace(env_state=()), key=None)
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return sorted(jax.tree_util.keystr(path) for path, leaf in leaves if str(leaf.dtype).endswith("64"))


def all_numbers(where, save):
    """Return the names of 64-bit leaves of all runs; `save(name, numbers)` stores the results."""
    problems = {}
    runs = {name: partial(initial, name) for name in PARTS["memory"]} | RUNS | {"recorded": partial(recorded, where)}
    for name, run in runs.items():
        state = run()
        if found := of_64_bits(state):
            problems[name] = found
        save(name, numbers(state))
    return problems


if __name__ == "__main__":
    assert jax.config.jax_enable_x64
    target = Path(sys.argv[1])
    wide = all_numbers(target / "run", lambda name, found: np.savez(target / f"{name}.npz", **found))
    assert not wide, wide
