"""The network: encoders, dense layers, a memory, and heads; one tower for actor and critic, or one for each.

An observation's entries are encoded one by one and joined; dense layers follow, then the memory, then one linear layer
for the policy and one for the value, behind dense layers of its own where asked for. Each piece is a part, and
`none` is a memory like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.encoders import Auto, Reader, by_name, readers
from ppax.networks.head_for import FAMILIES, Head, head_for, same_actions
from ppax.networks.layers import ACTIVATIONS, dense, init_dense, init_layers, layers
from ppax.networks.memories import MemoryPart, NoMemory
from ppax.networks.observations import entries, select
from ppax.parts import brief
from ppax.types import ConfigError, Key, Memory, Outputs, Params, PyTree, Scalar, part, static

AUTO, NONE = Auto(), NoMemory()


@part
class Composed:
    """Actor and critic, made of parts. Make one with `network(env)`."""

    actor_readers: tuple[Reader, ...] = static()
    critic_readers: tuple[Reader, ...] = static()
    head: Head = static()
    # as asked for; the readers are what it came to
    encoder: Any = dataclasses.field(default=AUTO, metadata={"doc": "what reads the images of an observation"})
    memory: MemoryPart = dataclasses.field(default=NONE, metadata={"doc": "what is kept from step to step"})
    hidden: tuple[int, ...] = static("widths of the hidden layers", default=(64, 64), low=1)
    head_hidden: tuple[int, ...] = static(
        "widths of hidden layers behind the memory, for policy and value each", default=(), low=1
    )
    activation: str = static("after each hidden layer", default="tanh", choices=tuple(ACTIVATIONS))
    shared: bool = static("one torso for actor and critic instead of one each", default=False)
    log_std_init: float = static("log standard deviation at the start, for Box actions", default=0.0)
    actor_obs: tuple[str, ...] = static("entries of a Dict observation that the actor reads; none: all", default=())
    critic_obs: tuple[str, ...] = static("entries of a Dict observation that the critic reads; none: all", default=())
    distribution: str = static(
        "of Box actions: normal, clipped to the box; squashed into it by tanh; beta; squashed into a ball",
        default="normal",
        choices=FAMILIES,
    )
    state_std: bool = static("the standard deviation of Box actions depends on the observation", default=False)
    std_min: float | None = static("least standard deviation of Box actions", default=None, above=0.0)
    std_max: float | None = static("largest standard deviation of Box actions", default=None, above=0.0)
    ball_radius: float | None = static("of the ball; by default half the width of the box", default=None, above=0.0)

    __repr__ = brief

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Fresh parameters, a nested dict."""
        actor_key, critic_key, policy_key, value_key = jax.random.split(key, 4)
        towers, keys = self._towers(), {"actor": actor_key, "critic": critic_key}
        sizes = {name: self.memory.output_size(self._size(tower)) for name, tower in towers.items()}
        params = {
            "policy": self._init_head(policy_key, sizes["actor"], self.head.size, 0.01),
            "value": self._init_head(value_key, sizes.get("critic", sizes["actor"]), num_values, 1.0),
        }
        params |= {name: self._init_tower(tower, keys[name]) for name, tower in towers.items()}
        if self.head.log_std_size:
            params["log_std"] = jnp.full(self.head.log_std_size, self.log_std_init, jnp.float32)
        return params

    def initial_carry(self) -> PyTree:
        """Memory at the start of an episode, of each tower; () where there is none."""
        carry = {name: self.memory.initial_carry(self._size(tower)) for name, tower in self._towers().items()}
        return carry if jax.tree.leaves(carry) else ()

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Features of one observation for each tower."""
        dtype = params["policy"]["kernel"].dtype
        return {name: self._encode(params[name], tower, obs, dtype) for name, tower in self._towers().items()}

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Each tower's own memory over one stream's sequence."""
        before = carry if jax.tree.leaves(carry) else dict.fromkeys(features, ())
        out = {
            name: self.memory.scan(params[name].get("memory"), before[name], x, first) for name, x in features.items()
        }
        after = {name: part.carry for name, part in out.items()}
        return Memory(after if jax.tree.leaves(after) else (), {name: part.features for name, part in out.items()})

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Distribution and value from the features of each tower."""
        seen = {name: self.memory.project_out(params[name].get("memory"), x) for name, x in features.items()}
        outputs = self._finish(params["policy"], seen["actor"])
        value = self._finish(params["value"], seen.get("critic", seen["actor"]))
        return Outputs(self.head(outputs, params.get("log_std"), action_mask), value)

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Parameters whose value is `scale` times what it was, plus `shift`."""
        kernel, bias = params["value"]["kernel"], params["value"]["bias"]
        return params | {"value": params["value"] | {"kernel": kernel * scale, "bias": bias * scale + shift}}

    def _towers(self) -> dict[str, tuple[Reader, ...]]:
        """What each tower reads, by the tower's name among the parameters."""
        return {"actor": self.actor_readers} | ({} if self.shared else {"critic": self.critic_readers})

    def _size(self, tower: tuple[Reader, ...]) -> int:
        """Length of a tower's features, where its memory takes them."""
        return self.hidden[-1] if self.hidden else sum(reader.size() for reader in tower)

    def _init_tower(self, tower: tuple[Reader, ...], key: Key) -> Params:
        layers_key, encoder_key, memory_key = key, jax.random.fold_in(key, 1), jax.random.fold_in(key, 2)
        params = init_layers(layers_key, sum(reader.size() for reader in tower), self.hidden)
        keys = jax.random.split(encoder_key, len(tower))
        read = {reader.name: reader.encoder.init(k, reader.example()) for reader, k in zip(tower, keys, strict=True)}
        further = {
            "encoder": {name: inner for name, inner in read.items() if jax.tree.leaves(inner)},
            "memory": self.memory.init(memory_key, self._size(tower)),
        }
        return params | {name: inner for name, inner in further.items() if inner}

    def _init_head(self, key: Key, size: int, outputs: int, gain: float) -> Params:
        """The layers of `head_hidden`, and a linear one behind them."""
        params = init_layers(jax.random.fold_in(key, 1), size, self.head_hidden)
        return params | init_dense(key, (size, *self.head_hidden)[-1], outputs, gain)

    def _finish(self, params: Params, x: Array) -> Array:
        return dense(params, layers(params, x, self.head_hidden, self.activation))

    def _encode(self, params: Params, tower: tuple[Reader, ...], obs: PyTree, dtype: Any) -> PyTree:
        encoders = params.get("encoder", {})
        read = [reader.read(encoders.get(reader.name), obs, dtype) for reader in tower]
        x = read[0] if len(read) == 1 else jnp.concatenate(read)
        return self.memory.project_in(params.get("memory"), layers(params, x, self.hidden, self.activation))


def require_made_for(network: Any, env: Any, field: str, name: str) -> None:
    """ConfigError where a network of ppax was made for other spaces than those of `env`."""
    if not isinstance(network, Composed):
        return
    there = tuple(entries(env.observation_space))
    read = [entry for reader in (*network.actor_readers, *network.critic_readers) for entry in reader.entries]
    other = next((entry for entry in read if entry not in there), None)
    if other is not None:
        what = f"it reads {other}, and observations have {', '.join(map(str, there))}"
    elif not same_actions(network.head, head_for(env.action_space)):
        what = f"its actions are those of {network.head}, and here they are {env.action_space}"
    else:
        return
    raise ConfigError(
        f"{field}: made for another environment than {name or 'this one'}: {what}; "
        "make one for this environment: ppax.networks.mlp(env) or ppax.networks.network(env)"
    )


def network(
    env: Any,
    encoder: Any = AUTO,
    memory: MemoryPart = NONE,
    hidden: Sequence[int] = (64, 64),
    head_hidden: Sequence[int] = (),
    activation: str = "tanh",
    shared: bool = False,
    log_std_init: float = 0.0,
    actor_obs: Sequence[str] = (),
    critic_obs: Sequence[str] = (),
    **box: Any,
) -> Composed:
    """A network for the spaces of `env` (anything with `observation_space` and `action_space`).

    `encoder` is a part of `networks.encoders`, one of your own (`networks.adapters`), or a dict of them by the names of
    a Dict observation's entries. `box` are the options of Box actions, as `heads.head_for` has them: distribution,
    state_std, std_min, std_max and ball_radius. ConfigError where something does not fit the spaces.
    """
    found = tuple(entries(env.observation_space))
    actor_obs = tuple(actor_obs) or getattr(env, "actor_obs", ())  # where some are for the critic alone
    encoder = by_name(encoder, found) if isinstance(encoder, Mapping) else encoder
    actor, critic = select(found, tuple(actor_obs), "actor_obs"), select(found, tuple(critic_obs), "critic_obs")
    if shared and actor != critic:
        raise ConfigError("network.shared = true: one torso reads the same for actor and critic; set it to false")
    return Composed(
        readers(encoder, actor),
        readers(encoder, critic),
        head_for(env.action_space, **box, log_std_init=log_std_init),
        encoder,
        memory,
        tuple(hidden),
        tuple(head_hidden),
        activation,
        shared,
        log_std_init,
        tuple(actor_obs),
        tuple(critic_obs),
        **box,
    )
