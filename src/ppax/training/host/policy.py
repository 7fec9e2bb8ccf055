"""Policy inference for host environments: in NumPy where that is possible and faster, else by one compiled call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.protocols import Agent, Distribution
from ppax.core.types import Key, LearnerState, PyTree
from ppax.devices.layout import product_dtype
from ppax.devices.platforms import rules
from ppax.devices.tracing import compiled, renewed
from ppax.distributions import BallNormal, Categorical, Factorised, Joint, Normal, SquashedNormal
from ppax.envs import HostEnv
from ppax.ppo.ppo import PPO
from ppax.training.host.numpy_program import NoNumpyVersion, NumpyProgram

NORMAL = (Normal, SquashedNormal, BallNormal)
KNOWN = (Categorical, Factorised, Joint, *NORMAL)  # not their subclasses, which may sample in another way


def make_policy(agent: Agent, env: HostEnv, learner: LearnerState, deterministic: bool = False) -> HostPolicy:
    """Return the policy inference that is faster for these sizes and this network: in NumPy, or compiled.

    `deterministic` takes the mode of the distribution instead of a sample. Of `learner` only shapes are read.
    """
    own = any(type(one).act is not PPO.act for one, _ in agent.learners(env.num_streams))
    if own or agent.sharing != "shared" or env.sizes:
        return CompiledPolicy(agent, env, learner, deterministic)
    params = sum(leaf.size for leaf in jax.tree.leaves(learner.params))
    small = max(env.host.sizes()) * params <= rules().numpy_work
    # a convolution uses its weights once for each pixel: the number of parameters says nothing of its work
    images = any(x.ndim > 3 for x in jax.tree.leaves(zero_inputs(agent, env, env.num_agents).obs))
    dtypes = {product_dtype(one.compute_dtype) for one, _ in agent.learners(env.num_streams)}
    if small and not images and not jax.tree.leaves(agent.start_carry(1)) and dtypes == {"float32"}:
        try:
            return HostNumpyPolicy(agent, env, learner, deterministic)
        except (NoNumpyVersion, TypeError):
            pass  # a network or distribution without a NumPy version
    return CompiledPolicy(agent, env, learner, deterministic)


class HostPolicy(Protocol):
    """Protocol of policy inference for host environments: a call for each batch of streams and each step.

    A stream is one agent in one environment.
    """

    @property
    def structure(self) -> Any:
        """Tree structure of an action, whose leaves `PolicyOutputs` has as a list."""

    def begin(self, agent: Agent, learner: LearnerState, num_steps: int, key: Key) -> None:
        """Start a rollout of `num_steps` steps with these parameters and this random key."""

    def act(self, t: int, rows: slice, inputs: PolicyInputs) -> PolicyOutputs:
        """Return actions at step `t` of the rollout for the streams `rows`, one agent in one environment each."""


class PolicyInputs(NamedTuple):
    """Inputs of the policy for a batch of e streams, one agent in one environment each."""

    carry: PyTree  # [e, ...]
    obs: PyTree  # [e, ...]
    first: Any  # [e]
    mask: PyTree | None  # [e, n]


class PolicyOutputs(NamedTuple):
    """Actions and next carry (the memory's recurrent state) of a batch of e streams, one agent in one environment each.

    Actions are lists of leaves, in JAX's flattening order.
    """

    carry: PyTree  # [e, ...]
    action: list[np.ndarray]  # [e, ...] each, as sampled; stored in the rollout
    env_action: list[np.ndarray]  # [e, ...] each, clipped or squashed, for the environments


class HostNumpyPolicy:
    """Policy inference in NumPy, for networks without memory; noise of samples comes from a NumPy generator.

    The generator is seeded by the rollout's key.
    """

    def __init__(self, agent: Agent, env: HostEnv, learner: LearnerState, deterministic: bool):
        self._deterministic, self._programs = deterministic, {}
        example = zero_inputs(agent, env, env.num_streams)
        self._distribution = jax.eval_shape(renewed(_distribution), (agent, learner), example)
        noise = self._noise(1, np.random.default_rng(0))
        for rows in env.host.sizes():
            part = jax.tree.map(lambda x, rows=rows: x[:rows], (example, jax.tree.map(lambda x: x[0], noise)))
            self._programs[rows] = NumpyProgram(_sample if not deterministic else _mode, (agent, learner), *part)
            self.structure = jax.tree.structure(self._programs[rows].result[0])

    def begin(self, agent: Agent, learner: LearnerState, num_steps: int, key: Key) -> None:
        """Bind the parameters, and draw the random numbers of all steps of a rollout from the key."""
        for program in self._programs.values():
            program.bind((agent, learner))
        seed = np.asarray(jax.random.key_data(key)).tolist()
        self._leaves = jax.tree.leaves(self._noise(num_steps, np.random.default_rng(seed)))

    def act(self, t: int, rows: slice, inputs: PolicyInputs) -> PolicyOutputs:
        """Return actions at step `t` of the rollout for the streams `rows`, one agent in one environment each."""
        noise = [leaf[t % len(leaf), rows] for leaf in self._leaves]
        out = self._programs[rows.stop - rows.start](*jax.tree.leaves(inputs), *noise)
        return PolicyOutputs((), out[: len(out) // 2], out[len(out) // 2 :])

    def _noise(self, num_steps: int, rng: np.random.Generator) -> PyTree:
        return () if self._deterministic else noise_for(self._distribution, num_steps, rng)


def _sample(parameters: tuple[Agent, LearnerState], inputs: PolicyInputs, noise: PyTree) -> tuple[PyTree, PyTree]:
    distribution = _distribution(parameters, inputs)
    action = action_from_noise(distribution, noise)
    return action, distribution.env_action(action)


def _mode(parameters: tuple[Agent, LearnerState], inputs: PolicyInputs, noise: PyTree) -> tuple[PyTree, PyTree]:
    distribution = _distribution(parameters, inputs)
    return distribution.mode(), distribution.env_action(distribution.mode())


def _distribution(parameters: tuple[Agent, LearnerState], inputs: PolicyInputs) -> Any:
    agent, learner = parameters
    return agent.policy(learner, *inputs).distribution


def noise_for(distribution: Distribution, num_steps: int, rng: np.random.Generator) -> PyTree:
    """Return noise [T, ...], drawn from `rng`, from which `action_from_noise` makes the actions of `num_steps` steps.

    Of `distribution` only shapes are read. Raises TypeError unless it is categorical, normal (also squashed), or a
    combination of such distributions.
    """
    if type(distribution) not in KNOWN:
        raise TypeError(f"no noise for {type(distribution).__name__}")
    if isinstance(distribution, Categorical):
        return rng.gumbel(size=(num_steps, *distribution.logits.shape)).astype(np.float32)
    if isinstance(distribution, Factorised):
        return noise_for(distribution.component, num_steps, rng)
    if isinstance(distribution, NORMAL):
        return rng.standard_normal((num_steps, *distribution.mean.shape), np.float32)
    parts: Any = distribution.components  # type: ignore[attr-defined]  # of a Joint
    if isinstance(parts, dict):
        return {name: noise_for(parts[name], num_steps, rng) for name in sorted(parts)}
    return tuple(noise_for(part, num_steps, rng) for part in parts)


def action_from_noise(distribution: Distribution, noise: PyTree) -> PyTree:
    """Return an action that is distributed like `distribution.sample`, made of `noise` from `noise_for`.

    Raises TypeError for the distributions for which `noise_for` raises it.
    """
    if isinstance(distribution, Categorical):
        # Gumbel-max trick: Maddison et al. 2014, https://arxiv.org/abs/1411.0030
        return jnp.argmax(distribution.logits + noise, axis=-1).astype(jnp.int32)
    if isinstance(distribution, Factorised):
        return action_from_noise(distribution.component, noise)
    if isinstance(distribution, NORMAL):
        return distribution.from_noise(noise)
    if isinstance(distribution, Joint):
        return distribution._each(action_from_noise, noise)
    raise TypeError(f"no noise for {type(distribution).__name__}")


class CompiledPolicy:
    """Policy inference of any agent by one compiled call per batch and step; the agent's `act` samples actions."""

    def __init__(self, agent: Agent, env: HostEnv, learner: LearnerState, deterministic: bool):
        self._programs = {rows: compiled_act(agent, env, learner, rows, deterministic) for rows in env.host.sizes()}
        self.structure = jax.tree.structure(next(iter(self._programs.values())).action)

    def begin(self, agent: Agent, learner: LearnerState, num_steps: int, key: Key) -> None:
        """Store parameters and random key for a rollout; `num_steps` has no effect."""
        self._arguments = agent, learner, key

    def act(self, t: int, rows: slice, inputs: PolicyInputs) -> PolicyOutputs:
        """Return actions at step `t` of the rollout for the streams `rows`, one agent in one environment each."""
        agent, learner, key = self._arguments
        program = self._programs[rows.stop - rows.start]
        carry, *actions = program.call(agent, learner, inputs, key, np.int32(t), np.int32(rows.start))
        return PolicyOutputs(carry, *map(jax.tree.leaves, jax.device_get(actions)))


class CompiledAct(NamedTuple):
    """Compiled program that acts for one batch of streams in one step."""

    call: Callable[..., Any]
    action: PyTree  # shapes [e, ...], as sampled


def compiled_act(agent: Agent, env: HostEnv, learner: LearnerState, rows: int, deterministic: bool) -> CompiledAct:
    """Return a compiled program (agent, learner, inputs, key, step, first stream) -> (carry, action, env_action).

    It acts for a batch of `rows` streams, one agent in one environment each. `carry` is the memory's next recurrent
    state, and `env_action` the action as environments take it, clipped or squashed. Of `learner` only shapes are read.
    """
    key, number = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), jnp.int32)
    act = jax.jit(partial(_act, deterministic=deterministic))
    inputs = zero_inputs(agent, env, rows)
    program = compiled(act, agent, learner, inputs, key, number, number)
    return CompiledAct(program, act.eval_shape(agent, learner, inputs, key, number, number)[1])


def _act(
    agent: Agent,
    learner: LearnerState,
    inputs: PolicyInputs,
    key: Key,
    t: Array,
    start: Array,
    deterministic: bool,
) -> tuple[PyTree, PyTree, PyTree]:
    if deterministic:
        policy = agent.policy(learner, *inputs)
        action = policy.distribution.mode()
        return policy.carry, action, policy.distribution.env_action(action)
    if agent.pool is not None and agent.pool.share > 0.0:
        return _act_in_all(agent, learner, inputs, key, t, start)
    decision = agent.act(learner, *inputs, _stream_keys(key, t, start, inputs.first.shape[0]))
    return decision.carry, decision.action, decision.env_action


def _act_in_all(
    agent: Agent, learner: LearnerState, inputs: PolicyInputs, key: Key, t: Array, start: Array
) -> tuple[PyTree, PyTree, PyTree]:
    """Return carry, actions, and actions as the environment takes them, of one batch of streams in self-play.

    The carry is the memories' recurrent state. The batch's streams (one agent in one environment each) begin at the
    index `start`. The batch is padded with zeros to all environments, because an environment's index decides who plays
    in it.
    """
    num_agents, _, num_envs = agent.requires
    assert num_agents is not None
    assert num_envs is not None
    batch, begin = inputs.first.shape[0] // num_agents, start // num_agents  # environments

    def in_all(x: Array) -> Array:
        rows = x.shape[0] // batch
        everywhere = jnp.zeros((num_envs * rows, *x.shape[1:]), x.dtype)
        return jax.lax.dynamic_update_slice_in_dim(everywhere, x, begin * rows, 0)

    def in_batch(x: Array) -> Array:
        rows = x.shape[0] // num_envs
        return jax.lax.dynamic_slice_in_dim(x, begin * rows, batch * rows)

    keys = _stream_keys(key, t, jnp.int32(0), num_envs * num_agents)
    everyone: PolicyInputs = jax.tree.map(in_all, inputs)
    decision = agent.act(learner, *everyone, keys)
    return jax.tree.map(in_batch, (decision.carry, decision.action, decision.env_action))


def _stream_keys(key: Key, t: Array, start: Array, count: int) -> Array:
    """Return random keys for step `t`, one for each of `count` streams, whose indices begin at `start`.

    A stream is one agent in one environment. A key depends on the stream's index, so that samples do not depend on how
    streams are divided into batches.
    """
    streams = start + jnp.arange(count, dtype=jnp.int32)
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, t), streams)


def zero_inputs(agent: Agent, env: HostEnv, rows: int) -> PolicyInputs:
    """Return inputs of the policy with zeros, in the shapes of `rows` streams (one agent in one environment each)."""
    _, obs, mask = dataclasses.replace(env, num_envs=rows // env.num_agents).reset(jax.random.key(0))
    obs, mask = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), (obs, mask))
    carry = jax.tree.map(lambda x: np.asarray(x), agent.start_carry(rows))
    return PolicyInputs(carry, obs, np.ones(rows, bool), mask)
