"""Programs of a policy: functions from memory and observations of all streams to memory, actions and V.

`Policy.act` calls them. A program is computed in NumPy for small networks, else by one function that JAX compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ppax.agents.precision import acting_dtypes
from ppax.core.types import PyTree
from ppax.devices.platforms import NUMPY_WORK
from ppax.devices.tracing import compiled, renewed
from ppax.policy.actor import Actor, step
from ppax.training.host.numpy_program import NoNumpyVersion, NumpyProgram
from ppax.training.host.policy import PolicyInputs, action_from_noise, noise_for


class Called(NamedTuple):
    """Result of one call of a policy's program: memory and actions as lists of arrays in JAX's order, and V."""

    carry: list[Any]  # [B, ...] each; NumPy or JAX arrays
    action: list[np.ndarray]  # [B, ...] each, as the environment takes it
    value: Any  # [B]; NumPy or JAX array; None: not asked for


# Policy for a fixed number of streams; arguments: leaves of the memory, and those of observations, `first` and masks
Program = Callable[[Sequence[Any], Sequence[Any]], Called]


class InNumpy:
    """Program of a policy in NumPy; it samples actions, or without `rng` takes the mode.

    Samples are drawn from `rng`. `return_value` adds V. Raises NoNumpyVersion or TypeError where network or
    distribution have no NumPy version.
    """

    def __init__(
        self, agent: Actor, learner: Any, example: PolicyInputs, rng: np.random.Generator | None, return_value: bool
    ):
        self._rng, self._memory, self._return_value = rng, len(jax.tree.leaves(example.carry)), return_value
        noise: Any = ()
        if rng is not None:
            self._distribution = jax.eval_shape(renewed(_distribution), (agent, learner), example)
            noise = jax.tree.map(lambda x: x[0], noise_for(self._distribution, 1, np.random.default_rng(0)))
        function = partial(_mode if rng is None else _sample, return_value)
        self._program = NumpyProgram(function, (agent, learner), example, noise)
        self._program.bind((agent, learner))

    def __call__(self, carry: Sequence[Any], rest: Sequence[Any]) -> Called:
        """Return actions and memory of all streams, from the arrays of the memory and those of all other inputs.

        The other inputs, `rest`, are observations, `first` (True where an episode begins) and action masks, in JAX's
        order.
        """
        noise: list[Any] = []
        if self._rng is not None:
            noise = [x[0] for x in jax.tree.leaves(noise_for(self._distribution, 1, self._rng))]
        out = self._program(*carry, *rest, *noise)
        value = out.pop() if self._return_value else None  # the last leaf of the program's result
        return Called(out[: self._memory], out[self._memory :], value)


class InJax:
    """Program of a policy as one function compiled by JAX; it samples actions, or without `rng` takes the mode.

    The keys of samples are made from `rng`. `return_value` adds V.
    """

    def __init__(
        self, agent: Actor, learner: Any, example: PolicyInputs, rng: np.random.Generator | None, return_value: bool
    ):
        self._rng, structure = rng, jax.tree.structure(example)

        def act(agent: Actor, learner: Any, leaves: list[Any], seed: Array) -> Called:
            key = None if rng is None else jax.random.key(seed)
            inputs: PolicyInputs = jax.tree.unflatten(structure, leaves)
            out = step(agent, learner, *inputs, key, return_value=return_value)
            return Called(jax.tree.leaves(out.carry), jax.tree.leaves(out.action), out.value)

        self._parameters = jax.device_put((agent, learner))
        self._program = compiled(jax.jit(act), *self._parameters, jax.tree.leaves(example), np.uint32(0))

    def __call__(self, carry: Sequence[Any], rest: Sequence[Any]) -> Called:
        """Return actions and memory of all streams, from the arrays of the memory and those of all other inputs.

        The other inputs, `rest`, are observations, `first` (True where an episode begins) and action masks, in JAX's
        order.
        """
        seed = np.uint32(0 if self._rng is None else self._rng.integers(2**32, dtype=np.uint32))
        out = self._program(*self._parameters, [*carry, *rest], seed)
        return Called(out.carry, [np.asarray(x) for x in out.action], out.value)


def make_program(
    agent: Actor,
    learner: Any,
    example: PolicyInputs,
    rng: np.random.Generator | None,
    return_value: bool = False,
) -> Program:
    """Return the faster program of a policy for inputs with the shapes of `example`: in NumPy, or compiled by JAX.

    The program takes the mode of the distribution if `rng` is None, else a sample; `return_value` adds V. NumPy is
    faster for few streams and few parameters, if the policy has neither image observations nor memory; training on host
    environments chooses likewise (training/host/policy.py).
    """
    streams = len(example.first)
    params = sum(np.size(x) for x in jax.tree.leaves(learner))
    # a convolution uses its weights once for each pixel: the number of parameters says nothing of its work
    images = any(np.ndim(x) > 3 for x in jax.tree.leaves(example.obs))
    # nor is a memory faster in NumPy: measured for one stream, GRU the same, attention half as fast
    memory = bool(jax.tree.leaves(example.carry))
    if streams * params <= NUMPY_WORK and not images and not memory and acting_dtypes(agent, streams) == {"float32"}:
        try:
            return InNumpy(agent, learner, example, rng, return_value)
        except (NoNumpyVersion, TypeError):
            pass  # a network or distribution without a NumPy version
    return InJax(agent, learner, example, rng, return_value)


def _distribution(parameters: tuple[Actor, Any], inputs: PolicyInputs) -> Any:
    agent, learner = parameters
    return agent.policy(learner, *inputs).distribution


def _mode(return_value: bool, parameters: tuple[Actor, Any], inputs: PolicyInputs, noise: PyTree) -> PyTree:
    agent, learner = parameters
    out = step(agent, learner, *inputs, None, return_value=return_value)
    return out.carry, out.action, out.value


def _sample(return_value: bool, parameters: tuple[Actor, Any], inputs: PolicyInputs, noise: PyTree) -> PyTree:
    agent, learner = parameters
    out = agent.policy(learner, *inputs)
    action = out.distribution.env_action(action_from_noise(out.distribution, noise))
    return out.carry, action, out.value if return_value else None
