"""Networks that are one module of Flax (nnx or linen) or Equinox, with heads of ppax or of its own.

The module maps one observation to its output, an array or several:

* a vector: features, on which ppax puts a linear head for the policy and one for the value;
* `(policy, value)`: a whole actor-critic module. `policy` has the numbers that the action distribution takes (logits;
  means; with `state_std` means and standard deviations), `value` is [] or [1];
* `(policy, log_std, value)`: the same with log standard deviations, for distributions whose log standard deviations
  would otherwise be parameters that ppax adds.

Encoders, memories and separate torsos of actor and critic are in `composed.py`, where a module can be the encoder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.parts import Code, Table
from ppax.core.types import ConfigError, Key, Memory, Outputs, Params, PyTree, Scalar, part, static
from ppax.networks.adapters import NNX, Equinox, Linen, label_of
from ppax.networks.encoders import EntryReader
from ppax.networks.heads import BOX_DEFAULTS, BoxOptions, Head, head_for
from ppax.networks.layers import dense, init_dense, rescaled_dense
from ppax.networks.observations import entries, observation_space_of, select

POLICY_GAIN, VALUE_GAIN = 0.01, 1.0  # of the orthogonal weights of the heads, as in `Composed`


class ModuleOutput(NamedTuple):
    """Output of a module for one observation: features, or what a whole actor-critic module returns."""

    features: Array | None = None  # [F]
    policy: Array | None = None  # [size of the head]
    log_std: Array | None = None  # [number of free log standard deviations]; None: they are parameters of ppax
    value: Array | None = None  # [num_values]


@part
class ModuleNetwork(BoxOptions):
    """Network of one module of another library. Construct it with `nnx(env, module)`, `linen` or `equinox`."""

    reader: EntryReader = static()
    head: Head = dataclasses.field(metadata={"doc": ""})  # a subtree: its numbers can be swept and annealed
    module: Code = static(
        "import path of a class, function or instance, my_package:Torso, that maps an observation to features, or to "
        "(policy, value)",
        default="",
        code=True,
    )
    arguments: Table = static("arguments of the class or function", default=Table(), convert=Table)

    adapter: ClassVar[Any]  # class of the adapter of the library

    @classmethod
    def for_spaces(cls, env: Any, module: Any = "", arguments: Mapping[str, Any] = Table(), **box: Any) -> Self:
        """Return the network for the spaces of `env`, with the user's `module`, a class, function or instance.

        `box` are options of Box actions. Raises ConfigError where the module cannot be made with `arguments`, or where
        its output does not fit the spaces.
        """
        if getattr(env, "actor_obs", ()):
            raise ConfigError(
                "network: this environment has observations for the critic only, and one module would show them to the "
                "actor; use a module as the encoder of actor and critic each: network.encoder"
            )
        seen = select(tuple(entries(observation_space_of(env))), (), "module")
        adapted: Any = cls.adapter(module, arguments)
        given = {name: box[name] for name in BOX_DEFAULTS if name in box}
        head = head_for(env.action_space, **given)
        made = cls(EntryReader(seen, adapted), head, adapted.module, adapted.arguments, **box)
        made.output_shapes(jax.eval_shape(made.init_module, jax.random.key(0)))  # raises ConfigError where it is wrong
        return made

    @property
    def actor_readers(self) -> tuple[EntryReader, ...]:
        """Actor encoder, the user's module, with the entries of the observation that it reads; a tuple of one."""
        return (self.reader,)

    @property
    def critic_readers(self) -> tuple[EntryReader, ...]:
        """Encoder of the critic, the same module as the actor's, with the entries that it reads, in a tuple of one."""
        return (self.reader,)

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Return new parameters, a nested dict: those of the module, and those of ppax's heads that it needs.

        A module that returns features needs linear heads. Raises ConfigError where the module's output does not fit the
        action space, or where its own value has another size than `num_values`, the number of value outputs that the
        critic needs.
        """
        module_key, policy_key, value_key = jax.random.split(key, 3)
        params = {"module": self.init_module(module_key)}
        output = self.output_shapes(params["module"])
        if output.features is not None:
            (size,) = output.features.shape
            params["policy"] = init_dense(policy_key, size, self.head.size, POLICY_GAIN)
            params["value"] = init_dense(value_key, size, num_values, VALUE_GAIN)
        elif output.value is not None and output.value.size != num_values:
            raise ConfigError(
                f"{self._label}: its value is {list(output.value.shape)}, and this critic needs {num_values} numbers: "
                "return features, on which ppax puts its heads, or a value of that size"
            )
        if self.head.log_std_size and output.log_std is None:
            params["log_std"] = jnp.full(self.head.log_std_size, self.log_std_init, jnp.float32)
        return params

    def init_module(self, key: Key) -> Params:
        """Return new parameters of the user's module alone, without heads of ppax.

        Raises ConfigError where the module cannot be made, or has state besides its parameters.
        """
        params: Params = self.reader.encoder.init(key, self.reader.example())
        return params

    def output_shapes(self, params: Params) -> ModuleOutput:
        """Return the shapes of the module's output: a `ModuleOutput` whose fields are `jax.ShapeDtypeStruct` or None.

        `params` are the module's parameters. Raises ConfigError where the output is neither a vector of features nor
        (policy, value) or (policy, log_std, value), or does not fit the action space.
        """
        output: ModuleOutput = jax.eval_shape(
            lambda params: self._output(self.reader.encoder(params, self.reader.example())), params
        )
        return output

    def initial_carry(self) -> PyTree:
        """Return (), as these networks have no memory."""
        return ()

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Return the module's output for one observation, as a dict with the array "actor", or "policy" and "value".

        "actor" are the features of a module that returns features, named as in other networks. If the module returns
        log standard deviations, the dict also has "log_std".
        """
        dtype = next((leaf.dtype for leaf in jax.tree.leaves(params)), jnp.dtype("float32"))
        output = self._output(self.reader.read(params["module"], obs, dtype))
        if output.features is not None:
            return {"actor": output.features}  # as a network with `shared` has it: extensions read it by this name
        return {name: x for name, x in output._asdict().items() if x is not None}

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Return carry and features [L, ...] as they are: there is no memory."""
        return Memory(carry, features)

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Return action distribution and value outputs from the module's output for one step."""
        if "actor" in features:
            policy, value = (dense(params[name], features["actor"]) for name in ("policy", "value"))
        else:
            policy, value = features["policy"], features["value"]
        log_std = features.get("log_std", params.get("log_std"))
        return Outputs(self.head(policy, log_std, action_mask), value)

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Return the parameters with the value head's last layer changed: new outputs = scale * old outputs + shift.

        A critic whose value targets change their scale, such as PopArt, keeps its values V in this way. Raises
        ConfigError for a module that returns the value itself.
        """
        if "value" not in params:
            raise ConfigError(
                f"{self._label}: this critic rescales the last layer of the value, which is inside of the module: "
                'return features, on which ppax puts its heads, or write critic.part = "regression"'
            )
        return params | {"value": rescaled_dense(params["value"], scale, shift)}

    @property
    def _label(self) -> str:
        return f"network: module {label_of(self.module)}"

    def _output(self, given: Any) -> ModuleOutput:
        """Return what the user's module returned for one observation as a `ModuleOutput`, with the value as a vector.

        Raises ConfigError unless that is a vector of features, of any length, or (policy, value) or (policy, log_std,
        value), with as many numbers in policy and log_std as the action distribution takes.
        """
        if hasattr(given, "shape"):
            if len(given.shape) != 1:
                raise ConfigError(f"{self._label} returns features of shape {list(given.shape)}: must be a vector")
            return ModuleOutput(features=given)
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise ConfigError(
                f"{self._label} returns {_form(given)}: must be a vector of features, or (policy, value), or (policy, "
                "log_std, value)"
            )
        policy, *log_std, value = given
        size, free = self.head.size, self.head.log_std_size
        self._require(policy, size, f"the policy must be {size} numbers, the parameters of the action distribution")
        if log_std and not free:
            raise ConfigError(
                f"{self._label} returns a log_std, and these actions have no standard deviation that does not depend "
                "on the observation: must be (policy, value)"
            )
        if log_std:
            self._require(log_std[0], free, f"log_std must be {free} numbers, one for each element of the action")
        if not hasattr(value, "shape") or len(value.shape) > 1:
            raise ConfigError(f"{self._label} returns the value as {_form(value)}: must be a number, [] or [1]")
        own = log_std[0] if log_std else None
        return ModuleOutput(policy=policy, log_std=own, value=jnp.atleast_1d(value))

    def _require(self, x: Any, size: int, text: str) -> None:
        """Raise ConfigError, which ends in `text`, unless `x` is a vector of `size` numbers."""
        if getattr(x, "shape", None) != (size,):
            raise ConfigError(f"{self._label} returns {_form(x)}: {text}, shape [{size}]")


@part
class NNXNetwork(ModuleNetwork):
    """Network of one module of flax.nnx. Construct it with `networks.nnx(env, module)`."""

    adapter: ClassVar[Any] = NNX


@part
class LinenNetwork(ModuleNetwork):
    """Network of one module of flax.linen. Construct it with `networks.linen(env, module)`."""

    adapter: ClassVar[Any] = Linen


@part
class EquinoxNetwork(ModuleNetwork):
    """Network of one Equinox module. Construct it with `networks.equinox(env, module)`."""

    adapter: ClassVar[Any] = Equinox


def nnx(env: Any, module: Any, arguments: Mapping[str, Any] = Table(), **box: Any) -> NNXNetwork:
    """Return a network of one module of flax.nnx for the spaces of `env`.

    `module` is a class or function, which is called with the `arguments` and `rngs`, or an instance. It maps one
    observation to a vector of features, to (policy, value), or to (policy, log_std, value). `box` has options of Box
    actions: distribution, state_std, std_min, std_max, ball_radius and log_std_init. ConfigError where the module
    cannot be made with the arguments, has other state than parameters, or its output does not fit the spaces.
    """
    return NNXNetwork.for_spaces(env, module, arguments, **box)


def linen(env: Any, module: Any, arguments: Mapping[str, Any] = Table(), **box: Any) -> LinenNetwork:
    """Return a network of one module of flax.linen for the spaces of `env`: as `nnx`, without `rngs`."""
    return LinenNetwork.for_spaces(env, module, arguments, **box)


def equinox(env: Any, module: Any, arguments: Mapping[str, Any] = Table(), **box: Any) -> EquinoxNetwork:
    """Return a network of one Equinox module for the spaces of `env`: as `nnx`, with `key` in place of `rngs`."""
    return EquinoxNetwork.for_spaces(env, module, arguments, **box)


def _form(x: Any) -> str:
    """Return types and shapes of a module's output, as text."""
    if hasattr(x, "shape"):
        return f"an array {list(x.shape)}"
    if isinstance(x, tuple | list):
        return f"({', '.join(map(_form, x))})"
    return f"a {type(x).__name__}"
