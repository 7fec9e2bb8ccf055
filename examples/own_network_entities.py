"""Custom network: attention over a set of entities, and actions that point at one of them.

The agent's state attends over the entities (cross-attention), whatever their order and number. Actions are directions,
or with a pointer head one of the entities: its logit is the product of a query and the entity's key (pointer networks,
Vinyals et al. 2015, https://arxiv.org/abs/1506.03134).
"""

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
    pointing: bool = static("an action names the piece of fruit to walk towards, not a direction", default=False)
    num_agents = None

    @property
    def action_space(self):
        return spaces.Discrete(self.rows if self.pointing else len(STEPS))

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
        return EnvReset(state, self._seen(state), self._mask(state))

    def step(self, state, action, key):
        step = STEPS[action % len(STEPS)]
        if self.pointing:
            way = state.fruit[action] - state.place
            step = 0.15 * way / jnp.maximum(jnp.linalg.norm(way), 0.15)
        place = jnp.clip(state.place + step, -1.0, 1.0)
        picked = state.there & (jnp.linalg.norm(state.fruit - place[None], axis=1) < 0.2)
        grown = jax.random.uniform(key, state.fruit.shape, minval=-1.0)
        state = State(place, jnp.where(picked[:, None], grown, state.fruit), state.ripe, state.there)
        reward = jnp.where(picked, state.ripe, 0.0).sum()
        never = jnp.zeros((), bool)
        return EnvStep(state, self._seen(state), reward, never, never, self._mask(state))

    def _mask(self, state):
        return state.there if self.pointing else None  # empty rows cannot be pointed at

    def _seen(self, state):
        rows = [state.fruit - state.place[None], state.ripe[:, None], jnp.ones((self.rows, 1))]
        return {"fruit": jnp.where(state.there[:, None], jnp.concatenate(rows, axis=1), 0.0), "place": state.place}


@part
class EntityAttention:
    """The agent's own state attends over entities [K, n], whose last number is 0 for empty rows; no memory."""

    sizes: tuple[int, int] = static("sizes of the agent's own state and of an entity")
    actions: int | None = static("number of actions; None: an action points at an entity", default=None)
    width: int = static("size of the features", default=32, low=1)
    heads: int = static("attention heads; must divide the width", default=4, low=1)

    def init(self, key, num_values=1):
        own, entity, query, key_value, policy, value = jax.random.split(key, 6)
        return {
            "own": init_dense(own, self.sizes[0], self.width, 2.0**0.5),
            "entity": init_dense(entity, self.sizes[1], self.width, 2.0**0.5),
            "query": init_dense(query, self.width, self.width, 1.0),
            "key_value": init_dense(key_value, self.width, 2 * self.width, 1.0),
            "policy": init_dense(policy, 2 * self.width, self.actions or self.width, 0.01),
            "value": init_dense(value, 2 * self.width, num_values, 1.0),
        }

    def initial_carry(self):
        return ()

    def encode(self, params, obs):
        """Features of one observation: the agent's state with the attention's output [2 width], and keys [K, width]."""
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
        attended = jnp.einsum("hk,khd->hd", weights, values).ravel()
        return {"whole": jnp.concatenate([own, attended]), "keys": keys.reshape(-1, self.width)}

    def remember(self, params, carry, features, first):
        return Memory(carry, features)

    def decide(self, params, features, action_mask):
        logits = dense(params["policy"], features["whole"])
        if self.actions is None:  # pointer head: a query, and a logit for each entity's key
            logits = features["keys"] @ logits * self.width**-0.5
        return Outputs(Categorical.masked(logits, action_mask), dense(params["value"], features["whole"]))

    def rescale_value(self, params, scale, shift):
        kernel, bias = params["value"]["kernel"], params["value"]["bias"]
        return params | {"value": {"kernel": kernel * scale, "bias": bias * scale + shift}}


def train(pointing: bool) -> float:
    """Train in the orchard and return the mean episode return."""
    env = VectorEnv(TimeLimit(Orchard(pointing=pointing), 50), num_envs=64)
    fruit = env.observation_space["fruit"].shape
    network = EntityAttention(sizes=(2, fruit[1]), actions=None if pointing else int(env.action_space.n))
    agent = ppax.PPO(network, learning_rate=3e-3, gamma=0.95, ent_coef=0.01)
    state = ppax.start(agent, env, num_steps=64, key=jax.random.key(0))
    _, metrics = jax.jit(ppax.train)(agent, env, state, ITERATIONS)
    return float(metrics["episode_return"])


def main() -> dict[str, float]:
    """Train with directions as actions, and with actions that point at fruit; return both mean episode returns."""
    scores = {"directions": train(pointing=False), "pointing": train(pointing=True)}
    print("mean episode return while training: " + ", ".join(f"{name} {x:.1f}" for name, x in scores.items()))
    return scores


if __name__ == "__main__":
    main()
