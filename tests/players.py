"""Environments of several agents that only tests need, built from those of one."""

import jax
import jax.numpy as jnp

from ppax.types import EnvReset, EnvStep, number, part, static


@part
class Copies:
    """Players who have nothing to do with each other: each alone in its own copy of `env`."""

    env: object
    num_agents: int = static(default=2)

    @property
    def observation_space(self):
        return self.env.observation_space

    @property
    def action_space(self):
        return self.env.action_space

    def reset(self, key):
        out = jax.vmap(lambda player: One(self.env, player).reset(key))(jnp.arange(self.num_agents))
        return EnvReset(*out)

    def step(self, state, action, key):
        players = jnp.arange(self.num_agents)
        return EnvStep(*jax.vmap(lambda player, s, a: One(self.env, player).step(s, a, key))(players, state, action))


@part
class One:
    """`env` with the randomness that `player` has among `Copies`."""

    env: object
    player: int = number(default=0)

    num_agents = None

    @property
    def observation_space(self):
        return self.env.observation_space

    @property
    def action_space(self):
        return self.env.action_space

    def reset(self, key):
        return self.env.reset(jax.random.fold_in(key, self.player))

    def step(self, state, action, key):
        return self.env.step(state, action, jax.random.fold_in(key, self.player))


@part
class Axis:
    """`env` with an agent axis of length one."""

    env: object
    num_agents = 1

    @property
    def observation_space(self):
        return self.env.observation_space

    @property
    def action_space(self):
        return self.env.action_space

    def reset(self, key):
        out = self.env.reset(key)
        return out._replace(**jax.tree.map(lambda x: x[None], {"obs": out.obs, "action_mask": out.action_mask}))

    def step(self, state, action, key):
        out = self.env.step(state, jax.tree.map(lambda x: x[0], action), key)._asdict()
        state = out.pop("state")
        return EnvStep(state, **jax.tree.map(lambda x: x[None], out))


@part
class Poisoned:
    """`env`, where what is seen and earned after an agent's own end is `poison`."""

    env: object
    poison: float = number(default=0.0)

    @property
    def num_agents(self):
        return self.env.num_agents

    @property
    def observation_space(self):
        return self.env.observation_space

    @property
    def action_space(self):
        return self.env.action_space

    def reset(self, key):
        out = self.env.reset(key)
        return out._replace(state=(out.state, jnp.zeros(self.num_agents, bool)))

    def step(self, state, action, key):
        inner, out = state
        step = self.env.step(inner, action, key)
        return step._replace(
            state=(step.state, out | step.terminated | step.truncated),
            obs=jnp.where(out[:, None], self.poison, step.obs),
            reward=jnp.where(out, self.poison, step.reward),
        )
