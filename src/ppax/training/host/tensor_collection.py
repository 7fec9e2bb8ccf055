"""Rollouts of simulators whose tensors are on the device of the compiled programs: no data of a step leaves it.

A step is up to three compiled calls: the policy, the critic (where the simulator gives final observations), and the
recording. The simulator may overwrite its buffers in the next step. Only critic and recording read the buffers. The
recording takes the critic's values, and the next actions are computed from the recording's results: when the simulator
gets these actions, its buffers have been read. The host looks for faults, such as an observation that is not finite,
once per rollout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.arrays import masks
from ppax.core.protocols import Agent
from ppax.core.types import ActorState, ConfigError, Key, LearnerState, PyTree
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.arrays import element_of, leaves_of, space_mismatches, undeclared
from ppax.envs.hosting.faults import NotFiniteValue
from ppax.envs.hosting.stepper import TensorStep
from ppax.envs.hosting.tensor_batch import NO_FINAL_OBS
from ppax.ppo.forward import remembered
from ppax.training.host.collection import HostRollout, collect_on_host
from ppax.training.host.policy import HostPolicy, PolicyInputs, PolicyOutputs, compiled_act, make_policy

NUMBERS = ("its reward is not finite", "its observation is not finite", "its last observation is not finite")
FAULTS = (
    *NUMBERS,
    "its action mask has entries other than 0 and 1",
    "its action mask allows no action",
    NO_FINAL_OBS,
)


class Collector(NamedTuple):
    """Policy inference, and the function that collects rollouts with it, which is called as `collect_on_host` is."""

    policy: HostPolicy
    collect: Any


def collector_of(agent: Agent, env: HostEnv, learner: LearnerState) -> Collector:
    """Return the collector of rollouts for training: on the host, or on a simulator's device.

    Of `learner` only shapes are read.
    """
    if env.host.exchange is None:
        return Collector(make_policy(agent, env, learner), collect_on_host)
    policy = TensorPolicy(agent, env, learner)
    return Collector(policy, TensorCollection(env, policy.actions))


class TensorPolicy:
    """Policy inference by one compiled call per step, whose results stay on the device; actions are sampled."""

    def __init__(self, agent: Agent, env: HostEnv, learner: LearnerState):
        self._program = compiled_act(agent, env, learner, env.num_streams, deterministic=False)
        actions = self._program.action
        self.actions = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), actions)
        self.structure = jax.tree.structure(actions)

    def begin(self, agent: Agent, learner: LearnerState, num_steps: int, key: Key) -> None:
        """Store parameters and random key on the device for a rollout; `num_steps` has no effect."""
        self._arguments, self._start = jax.device_put((agent, learner, key)), jax.device_put(np.int32(0))

    def act(self, t: Any, rows: slice, inputs: PolicyInputs) -> PolicyOutputs:
        """Return the policy's actions for all streams (one agent in one environment) at step `t`, an array [].

        `rows` has no effect.
        """
        agent, learner, key = self._arguments
        carry, *actions = self._program.call(agent, learner, inputs, key, t, self._start)
        return PolicyOutputs(carry, *map(jax.tree.leaves, actions))


class Recording(NamedTuple):
    """Rollout of a simulator so far, and the faults found in it; arrays [T, ...] are written step by step."""

    rollout: HostRollout
    step: Array  # [] int32, index of the next step to write
    fault: Array  # [T, B] int8, index into FAULTS; len(FAULTS) where there is none


class Seen(NamedTuple):
    """Inputs of the policy except its carry, copied out of the simulator's buffers, which the next step overwrites."""

    obs: PyTree  # [B, ...]
    first: Array  # [B]
    mask: Array | None  # [B, n]


class TensorCollection:
    """Collection of rollouts from a simulator whose arrays stay on the device, with one agent in each environment."""

    def __init__(self, env: HostEnv, actions: PyTree):
        self._spec, self._streams, self._actions = env.host.spec, env.num_streams, actions
        self._begin = jax.jit(self._begun, static_argnums=(1, 2))
        self._record = jax.jit(self._recorded, donate_argnums=0)
        self._value = jax.jit(self._final_value)

    def __call__(
        self,
        policy: HostPolicy,
        value_of: Any,
        env: HostEnv,
        actor: ActorState,
        num_steps: int,
        length: int,
        parameters: Any,
    ) -> HostRollout:
        """Return a rollout of `num_steps` steps of all environments, from `actor` on.

        The arguments are those of `collect_on_host`; `value_of` has no effect. Raises EnvError for a fault of the
        simulator; after any exception the simulator is closed.
        """
        host, rows = env.host, slice(0, self._streams)
        try:
            parameters = jax.device_put(parameters)
            recording, seen, carry = self._begin(actor, num_steps, length)
            for _ in range(num_steps):
                acted = policy.act(recording.step, rows, PolicyInputs(carry, *seen))  # type: ignore[arg-type]
                step, final = host.step_on_device(acted.env_action), None  # type: ignore[arg-type]
                if step.final_obs is not None:
                    final = self._value(parameters, acted.carry, step.final_obs)
                recording, seen = self._record(recording, carry, acted.action, step, final)
                carry = acted.carry
            self._check(recording)  # waits for the device
        except BaseException:
            env.close()
            raise
        host.last = [host.last[0]._replace(obs=jax.tree.leaves(seen.obs))]
        position = np.full(self._streams, host.position, np.uint32)
        return recording.rollout._replace(last_carry=carry, env_state=position)

    def _begun(self, actor: ActorState, num_steps: int, length: int) -> tuple[Recording, Seen, PyTree]:
        """Return an empty rollout with the observations before its first step, and the policy's first inputs and carry.

        The carry is the memory's recurrent state, which is stored at the start of each sequence of `length` steps.
        """

        def zeros(count: int, tree: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), tree)

        def each(dtype: Any) -> Any:
            return jnp.zeros((num_steps, self._streams), dtype)

        seen, memory = Seen(actor.obs, actor.first, actor.action_mask), remembered(actor.carry)
        before = jax.tree.map(lambda x: zeros(num_steps + 1, x).at[0].set(x), seen)
        rollout = HostRollout(
            obs=before.obs,
            first=before.first,
            mask=before.mask,
            action=zeros(num_steps, self._actions),
            reward=each(jnp.float32),
            terminated=each(bool),
            truncated=each(bool),
            valid=~each(bool),  # an episode ends and the next begins within a step
            final_value=each(jnp.float32),
            episode_stats=None,
            carry=zeros(num_steps // length, memory) if jax.tree.leaves(memory) else (),
            last_carry=(),
            metrics={name: each(jnp.float32) for name in self._spec.metrics},
            env_state=each(jnp.uint32)[0],
        )
        return Recording(rollout, jnp.int32(0), each(jnp.int8)), seen, actor.carry

    def _final_value(self, parameters: Any, carry: PyTree, final_obs: Any) -> tuple[Array, Array]:
        """Return V [B] of the final observations of episodes, and flags [B], True where these observations are finite.

        `parameters` is (agent, learner).
        """
        agent, learner = parameters
        obs, size = self._element(final_obs), self._spec.mask_size
        mask = None if size is None else jnp.ones((self._streams, size), bool)
        # no reset gate: the carry belongs to the truncated episode
        inputs = PolicyInputs(carry, obs, jnp.zeros(self._streams, bool), mask)
        return agent.policy(learner, *inputs).value, _finite(obs)

    def _recorded(
        self, recording: Recording, carry: PyTree, action: list[Array], step: TensorStep, final: Any
    ) -> tuple[Recording, Seen]:
        """Return the rollout with one more step written to it, and the inputs of the policy for the next step.

        `carry` is what the policy had before this step; `final` is the result of `_final_value`, or None.
        """
        rollout, t = recording.rollout, recording.step
        reward = self._numbers("reward", step.reward).astype(jnp.float32)
        terminated = self._numbers("terminated", step.terminated).astype(bool)
        truncated = self._numbers("truncated", step.truncated).astype(bool)
        cut, seen = truncated & ~terminated, Seen(self._element(step.obs), terminated | truncated, self._mask(step))
        value, finite = (jnp.zeros(self._streams), jnp.ones_like(cut)) if final is None else final
        may_act = jnp.ones_like(cut) if rollout.mask is None else rollout.mask[t].any(axis=-1)
        given = [x.reshape(self._streams, -1) for x in jax.tree.leaves(step.mask)]
        entries = jnp.concatenate([jnp.ones((self._streams, 1), bool), *given], axis=-1)
        masks_fine = ((entries == 0) | (entries == 1)).all(axis=-1), may_act
        fine = jnp.isfinite(reward), _finite(seen.obs), finite | ~cut, *masks_fine, ~cut | (final is not None)
        fault = jnp.argmin(jnp.stack([*fine, jnp.zeros_like(cut)]), axis=0)  # index of the first failed check
        logged = step.metrics or [jnp.zeros(self._streams)] * len(rollout.metrics)
        now: dict[str, Any] = {
            "action": jax.tree.unflatten(jax.tree.structure(self._actions), action),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "final_value": jnp.where(cut, value, 0.0),
            "metrics": {name: self._numbers(name, x) for name, x in zip(self._spec.metrics, logged, strict=True)},
        }
        written = {name: _put(getattr(rollout, name), x, t) for name, x in now.items()}
        written |= {name: _put(getattr(rollout, name), x, t + 1) for name, x in zip(Seen._fields, seen, strict=True)}
        memory = remembered(carry) if jax.tree.leaves(rollout.carry) else ()
        written["carry"] = jax.tree.map(
            lambda store, x: _at_start(store, x, t, len(rollout.valid)), rollout.carry, memory
        )
        return Recording(rollout._replace(**written), t + 1, _put(recording.fault, fault, t)), seen

    def _element(self, obs: Any) -> PyTree:
        """Return observations of the simulator as elements of its space; EnvError where their shapes do not fit.

        It runs while a program is traced, and so before the first step.
        """
        space = self._spec.observation_space
        like = jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), obs)
        for problem in space_mismatches(space, like, "its observation", (self._streams,)):
            raise EnvError(f"the simulator failed: {problem}")
        return element_of(space, (leaf.of(obs).astype(leaf.dtype) for leaf in leaves_of(space)))

    def _numbers(self, name: str, x: Array) -> Array:
        """Return `x` [B], which the simulator calls `name`; EnvError if it is not one number for each environment."""
        if x.shape != (self._streams,) or x.dtype.kind not in "fiub":
            raise EnvError(
                f"the simulator failed: its {name} is {x.dtype}{list(x.shape)}; must be {self._streams} numbers"
            )
        return x

    def _mask(self, step: TensorStep) -> Array | None:
        """Return the step's action masks [B, n]; None for a simulator without masks.

        Raises EnvError if the first reset gave masks and this step gives none, or the other way round.
        """
        given = {} if step.mask is None else {"action_mask": step.mask}
        for problem in undeclared(given, self._spec.mask_size is not None, False):
            raise EnvError(f"the simulator failed: {problem}")
        try:
            return masks.complete(self._spec.action_space, step.mask, self._streams, 'info["action_mask"]')
        except ConfigError as error:
            raise EnvError(f"the simulator failed: {error}") from None

    def _check(self, recording: Recording) -> None:
        """Raise EnvError for the first fault of a rollout, such as a reward that is not finite, if it has any.

        This waits for the device.
        """
        fault = np.asarray(recording.fault)
        for t, i in np.argwhere(fault < len(FAULTS))[:1]:
            action = [np.asarray(x[t, i]).tolist() for x in jax.tree.leaves(recording.rollout.action)]
            what = FAULTS[fault[t, i]]
            kind = NotFiniteValue if what in NUMBERS else EnvError
            raise kind(f"environment {i}, step {t}: {what}, action {action}")


def _put(store: PyTree, x: PyTree, row: Array) -> PyTree:
    """Return `store` with `x` written to the row `row` of each array."""
    return jax.tree.map(lambda store, x: store.at[row].set(x.astype(store.dtype)), store, x)


def _at_start(store: Array, x: Array, t: Array, num_steps: int) -> Array:
    """Return `store` [T / L, B, ...] with the carry `x` in the row of the sequence that begins at step `t`, if any.

    A carry is a memory's recurrent state, L is the length of a sequence, and `num_steps` is T.
    """
    length = num_steps // len(store)
    return store.at[t // length].set(jnp.where(t % length == 0, x, store[t // length]))


def _finite(tree: PyTree) -> Array:
    """Return whether all numbers of each row in all arrays of `tree` are finite, [B]."""
    rows = [jnp.isfinite(x).reshape(x.shape[0], -1).all(axis=-1) for x in jax.tree.leaves(tree)]
    return jnp.stack(rows).all(axis=0)
