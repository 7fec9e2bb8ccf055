"""Custom network: attention over a set of entities, independent of their order and number."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from ppax.types import EnvReset, EnvStep, Memory, Outputs, part, static

import ppax
from ppax.distributions import Categorical
from ppax.envs import TimeLimit, VectorEnv
from ppax.networks.layers import dense, init_dense

ITERATIONS = 60
STEPS = jnp.array([[0.0, 0.15], [0.0, -0.15], [0.15, 0.0], [-0.15, 0.0]])


class State(NamedTuple):
    place: jax.Array  # [2] in the square from -1 to 1
    fruit: jax.Array  # [K, 2]
    ripe: jax.Array  # [K] +1 or -1: the reward of picking it
    there: jax.Array  # [K] False in empty rows


@part
class Orchard:
    """Two to K pieces of fruit: walk to ripe ones and around the others; picked fruit grows again elsewhere."""

    rows: int = static("K, pieces of fruit at most", default=6, low=2)
    action_space = spaces.Discrete(4)
    num_agents = None

    @property
    def observation_space(self):
        inside = spaces.Box(-2.0, 2.0, (self.rows, 4))  # two coordinates relative to the agent, ripe, there
        return spaces.Dict({"fruit": inside, "place": spaces.Box(-1.0, 1.0, (2,))})

    def reset(self, key):
        place, fruit, ripe, number = jax.random.split(key, 4)
        count = jax.random.randint(number, (), 2, self.rows + 1)
        state = State(
            jax.random.uniform(place, (2,), minval=-1.0),
            jax.random.uniform(fruit, (self.rows, 2), minval=-1.0),
            jax.random.rademacher(ripe, (self.rows,), jnp.float32),
            jnp.arange(self.rows) < count,
        )
        return EnvReset(state, self._seen(state))

    def step(self, state, action, key):
        place = jnp.clip(state.place + STEPS[action], -1.0, 1.0)
        picked = state.there & (jnp.linalg.norm(state.fruit - place[None], axis=1) < 0.2)
        grown = jax.random.uniform(key, state.fruit.shape, minval=-1.0)
        state = State(place, jnp.where(picked[:, None], grown, state.fruit), state.ripe, state.there)
        reward = jnp.where(picked, state.ripe, 0.0).sum()
        return EnvStep(state, self._seen(state), reward, jnp.zeros((), bool), jnp.zeros((), bool))

    def _seen(self, state):
        rows = [state.fruit - state.place[None], state.ripe[:, None], jnp.ones((self.rows, 1))]
        return {"fruit": jnp.where(state.there[:, None], jnp.concatenate(rows, axis=1), 0.0), "place": state.place}


@part
class EntityAttention:
    """The agent's own state attends over entities [K, n], whose last number is 0 for empty rows; no memory."""

    sizes: tuple[int, int] = static("sizes of the agent's own state and of an entity")
    actions: int = static("number of actions")
    width: int = static("size of the features", default=32, low=1)
    heads: int = static("attention heads; must divide the width", default=4, low=1)

    def init(self, key, num_values=1):
        own, entity, query, key_value, policy, value = jax.random.split(key, 6)
        return {
            "own": init_dense(own, self.sizes[0], self.width, 2.0**0.5),
            "entity": init_dense(entity, self.sizes[1], self.width, 2.0**0.5),
            "query": init_dense(query, self.width, self.width, 1.0),
            "key_value": init_dense(key_value, self.width, 2 * self.width, 1.0),
            "policy": init_dense(policy, 2 * self.width, self.actions, 0.01),
            "value": init_dense(value, 2 * self.width, num_values, 1.0),
        }

    def initial_carry(self):
        return ()

    def encode(self, params, obs):
        """Features [2 width] of one observation: embedding of the agent's state, and attention output."""
        own = jnp.tanh(dense(params["own"], obs["place"]))
        of_each = jax.vmap(dense, (None, 0))  # the same layer for each entity
        entities = jnp.tanh(of_each(params["entity"], obs["fruit"]))  # [K, width]
        query = dense(params["query"], own).reshape(self.heads, -1)
        halves = jnp.split(of_each(params["key_value"], entities), 2, axis=-1)
        keys, values = (x.reshape(-1, *query.shape) for x in halves)  # [K, heads, width / heads]
        scores = jnp.einsum("hd,khd->hk", query, keys) * query.shape[1] ** -0.5
        there = obs["fruit"][:, -1] > 0.5
        weights = jnp.exp(scores - scores.max(axis=1, keepdims=True)) * there[None]
        weights = weights / jnp.maximum(weights.sum(axis=1, keepdims=True), 1e-6)  # zeros without any entity
        return jnp.concatenate([own, jnp.einsum("hk,khd->hd", weights, values).ravel()])

    def remember(self, params, carry, features, first):
        return Memory(carry, features)

    def decide(self, params, features, action_mask):
        logits = dense(params["policy"], features)
        return Outputs(Categorical.masked(logits, action_mask), dense(params["value"], features))

    def rescale_value(self, params, scale, shift):
        kernel, bias = params["value"]["kernel"], params["value"]["bias"]
        return params | {"value": {"kernel": kernel * scale, "bias": bias * scale + shift}}


def main() -> float:
    """Train in the orchard and return the mean episode return."""
    env = VectorEnv(TimeLimit(Orchard(), 50), num_envs=64)
    fruit = env.observation_space["fruit"].shape
    network = EntityAttention(sizes=(2, fruit[1]), actions=int(env.action_space.n))
    agent = ppax.PPO(network, learning_rate=3e-3, gamma=0.95, ent_coef=0.01)
    state = ppax.start(agent, env, num_steps=64, key=jax.random.key(0))
    _, metrics = jax.jit(ppax.train)(agent, env, state, ITERATIONS)
    score = float(metrics["episode_return"])
    print(f"mean episode return while training: {score:.1f}")
    return score


if __name__ == "__main__":
    main()
