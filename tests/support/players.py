"""Multi-agent environments for tests, built from single-agent ones."""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppax.core.types import EnvReset, EnvStep, number, part, static


@part
class Copies:
    """Players that do not interact: each in its own copy of `env`."""

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
    """Single environment with the random numbers of `player` in `Copies`."""

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
    """Wrapper that adds an agent axis of length one to `env`."""

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
    """Wrapper of `env` whose observations and rewards after an agent's end are `poison`."""

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


@part
class Orchestra:
    """Agents with different spaces: a leader announces one of three tunes, two players observe it and turn a knob.

    The leader observes the tune, is masked from the one before it, and ends after three steps; knobs should equal it.
    """

    num_agents = {"leader": 1, "player": 2}  # noqa: RUF012
    observation_space = spaces.Dict(
        {"leader": spaces.Box(0.0, 1.0, (3,), np.float32), "player": spaces.Box(-np.inf, np.inf, (2,), np.float32)}
    )
    action_space = spaces.Dict({"leader": spaces.Discrete(3), "player": spaces.Box(-1.0, 1.0, (1,), np.float32)})

    def _seen(self, state):
        _, tune, said = state
        said = jnp.broadcast_to(said.astype(jnp.float32), (2,))
        obs = {"leader": jax.nn.one_hot(tune, 3)[None], "player": jnp.stack([said, jnp.arange(2.0)], axis=1)}
        return obs, {"leader": (jnp.arange(3) != (tune + 2) % 3)[None]}

    def reset(self, key):
        state = jnp.int32(0), jax.random.randint(key, (), 0, 3), jnp.int32(0)
        return EnvReset(state, *self._seen(state))

    def step(self, state, action, key):
        time, tune, _ = state
        state = time + 1, jax.random.randint(key, (), 0, 3), action["leader"][0]
        obs, mask = self._seen(state)
        off = jnp.abs(action["player"][:, 0] - (tune - 1.0))
        reward = jnp.concatenate([(action["leader"] == tune).astype(jnp.float32), -off])
        return EnvStep(state, obs, reward, time + 1 >= jnp.array([3, 5, 5]), jnp.zeros(3, bool), mask)
