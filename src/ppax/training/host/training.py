"""Training on host environments: a Python loop collects each rollout; one compiled program does the rest.

That program computes action log-probabilities and values of the whole rollout from the parameters that acted, then the
update, metrics and episode statistics. So log-probabilities and values are not transferred at every step.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ppax.arrays import counter
from ppax.arrays.metrics import Summary, add_up, averaged, nothing
from ppax.core.protocols import Agent
from ppax.core.types import ActorState, Key, LearnerState, Played, PyTree, TrainState
from ppax.devices import sharding
from ppax.devices.layout import with_devices
from ppax.devices.platforms import rules
from ppax.devices.sharding import AXIS, SAME, SPLIT
from ppax.devices.tracing import compiled, renewed, unchecked
from ppax.envs import Env, EnvError, HostEnv
from ppax.envs.hosting.arrays import EpisodeStats
from ppax.ppo.forward import remembered
from ppax.training.host.collection import HostRollout
from ppax.training.host.rollouts import collected_from, reset_if_needed, value_of
from ppax.training.host.streams import no_carry
from ppax.training.host.tensor_collection import collector_of
from ppax.training.loop import (
    STAGES,
    IterationInputs,
    Trained,
    finish_iteration,
    iteration_inputs,
    num_devices,
    state_specs,
)

RESET = 2**32 - 2  # folded into the rollout's key for the seeds of environment resets
NONE_AHEAD = np.int32(0), np.uint32(0)  # iterations and environment steps that are played but not counted yet


class Begun(NamedTuple):
    """Start of the collection of a rollout: the state before it, the annealed agent, and random keys."""

    state: TrainState
    agent: Agent
    key: Key  # `TrainState.key` after the iteration
    reset_key: Key


class Gathering(NamedTuple):
    """Rollout that has been collected and waits for its update.

    `actor` is the state before the rollout if environments had to be reset for it; None: they were not, and the state
    that the update receives has it.
    """

    rollout: HostRollout
    actor: ActorState | None  # before the rollout; None: `actor` of the state that the update receives
    acted: LearnerState  # learner whose policy acted
    key: Key  # `TrainState.key` after the iteration


class HostTraining:
    """Compiled training on host environments, called like `ppax.train`; the result of `ppax.compile`.

    Hyperparameters (leaves of agent and environment) may change from call to call; shapes and static fields may not.

    With `overlap` = 1 the next rollout is collected while an update runs, by the policy before that update: data are
    one update old from the second iteration on, and an iteration takes the longer of both times instead of their sum.
    The update sees the log-probabilities and values of the policy that acted, as V-trace needs them.

    When the event `stop` is set, or after `chunk_seconds`, a call returns after the current iteration. An EnvError
    carries the result of the iterations completed before it in its attribute `reached`. `collect_seconds` is the time
    that the latest call spent on rollouts; for the rest of its time, the call waited for updates.
    """

    overlap = 0
    chunk_seconds = math.inf
    collect_seconds = 0.0

    def __init__(self, agent: Agent, env: HostEnv, state: TrainState, stop: threading.Event | None = None):
        begin = time.perf_counter()
        self._stop, self._devices = stop or threading.Event(), num_devices(agent, env, state.num_steps)
        shapes = _argument_shapes(agent, env, sharding.shapes_of(state, state_specs(state), 1))
        counters, one = _counters(shapes[3]), np.int32(1)
        inputs = jax.jit(renewed(_inputs))
        self._inputs = compiled(inputs, agent, counters, one, NONE_AHEAD)
        annealed = inputs.eval_shape(agent, counters, one, NONE_AHEAD)[0].agent
        # shapes, not the learner of `state`: that may lie on several devices, and the policy runs on one
        self.policy, self._collect = collector_of(annealed, env, shapes[3].learner)
        # not compiled ahead of time: batch sizes of `value_of` vary
        self._value, self._averaged = jax.jit(renewed(value_of)), jax.jit(averaged)
        shardings = _argument_shardings(state, self._devices)
        options: dict[str, Any] = {"compiler_options": rules().compiler_options}
        # Transfers of rollouts, and of an agent's hyperparameters, to the program's devices
        self.put: Any = lambda *arguments: arguments
        self._put_agent: Any = lambda agent: agent
        self._placed: tuple[Any, Any] = (None, None)  # agent of the last call, and its copy on the devices
        if shardings is not None:
            options["in_shardings"] = shardings
            self.put = lambda *arguments: jax.device_put(arguments, shardings[4:])
            self._put_agent = lambda agent: jax.device_put(agent, shardings[0])
        self.program: Any = compiled(jax.jit(renewed(_finish), **options), *shapes)
        self.reached: Callable[[TrainState], int] = lambda state: int(state.iteration)  # waits for the last update
        self._next: tuple[TrainState | None, Gathering | None] = (None, None)  # the next rollout, and its state
        metrics = shapes[6]
        self._nothing = nothing(metrics)
        self.metric_names: tuple[str, ...] = (*metrics.names, *STAGES)
        self._averaged(self._nothing, 1)
        self.compile_seconds = time.perf_counter() - begin

    def __call__(
        self,
        agent: Agent,
        env: HostEnv,
        state: TrainState,
        num_iterations: int,
        total_iterations: int | None = None,
    ) -> Trained:
        """Return the state after `num_iterations` iterations, at least one, and their metrics; see `ppax.train`.

        It returns after fewer iterations when it is stopped. Raises EnvError if an environment fails.
        """
        if total_iterations is None:
            total_iterations = int(state.iteration) + num_iterations
        if self._placed[0] is not agent:
            self._placed = agent, self._put_agent(agent)
        ready, self._next = self._next[1] if self._next[0] is state else None, (None, None)
        totals, done, total = self._nothing, 0, np.int32(total_iterations)
        first, until, self.collect_seconds = int(state.iteration), time.monotonic() + self.chunk_seconds, 0.0
        try:
            while done < num_iterations and not (done and (self._stop.is_set() or time.monotonic() > until)):
                if self.reached(state) < first + done:
                    break  # the last iteration was discarded
                here = state if self._devices == 1 else sharding.local(state)
                if ready is None:
                    ready = self._gather(agent, env, self._begin(agent, here, total), state.learner)
                arguments = self.put(
                    state.actor if ready.actor is None else ready.actor, ready.rollout, totals, ready.acted
                )
                goes_on = self.overlap and first + done + 1 < total_iterations and not self._stop.is_set()
                # before the update is dispatched: on a busy device these small programs would wait for its end
                following, before = self._begin(agent, here, total, ready) if goes_on else None, state
                with unchecked():  # an iteration that is not finite is discarded, and `grad_norm` is NaN
                    state, totals = self.program(self._placed[1], total, env, state, *arguments)
                done, ready = done + 1, None
                if following is not None:
                    ready = self._gather(agent, env, following, before.learner)._replace(actor=None)
        except EnvError as error:
            completed = self.reached(state) - first
            error.reached = Trained(state, self._averaged(totals, completed)) if completed else None
            raise
        completed = int(state.iteration) - first
        # a rollout collected during a discarded update is dropped with it: environments are reset
        self._next = state, ready if completed == done else None
        return Trained(state, self._averaged(totals, completed))

    def _begin(self, agent: Agent, state: TrainState, total: Any, ahead: Gathering | None = None) -> Begun:
        """Return the start of a rollout's collection, from `state` or from the end of the rollout `ahead`.

        `ahead` is a rollout that `state` has not learned from yet; None without `overlap`. `total` is the number of
        iterations of the whole training, for schedules.
        """
        counts = NONE_AHEAD
        if ahead is not None:
            state, counts = _after(state, ahead), (np.int32(1), np.uint32(ahead.rollout.valid.sum()))
        inputs, reset_key = jax.block_until_ready(self._inputs(agent, _counters(state), total, counts))
        self.policy.begin(inputs.agent, state.learner, state.num_steps, inputs.collect_key)
        return Begun(state, inputs.agent, inputs.key, reset_key)

    def _gather(self, agent: Agent, env: HostEnv, begun: Begun, acted: LearnerState) -> Gathering:
        """Return a rollout, collected with the learner of `begun`.

        `acted` is the same learner, on the devices of the update program.
        """
        state, annealed, key, reset_key = begun
        length, begin = agent.sequence_length(state.num_steps), time.perf_counter()
        actor, parameters = reset_if_needed(agent, env, state.actor, reset_key), (annealed, state.learner)
        rollout = self._collect(self.policy, self._value, env, actor, state.num_steps, length, parameters)
        self.collect_seconds += time.perf_counter() - begin
        return Gathering(rollout, None if actor is state.actor else actor, acted, key)


def _after(state: TrainState, played: Gathering) -> TrainState:
    """Return `state` as the collection of the next rollout reads it: after the rollout `played`, but before its update.

    The counters of iterations and steps are the old ones.
    """
    obs, first, mask = jax.tree.map(lambda x: x[-1], played.rollout[:3])
    ended_with: dict[str, Any] = {"env_state": played.rollout.env_state, "carry": played.rollout.last_carry}
    actor = state.actor._replace(obs=obs, first=first, action_mask=mask, **ended_with)
    return dataclasses.replace(state, actor=actor, key=played.key)


def for_overlap(agent: Agent, env: Env, num_steps: int, overlap: int) -> Any:
    """Return `agent`; with `overlap`, its updates run on fewer devices where they would occupy every core.

    The other cores then step environments. A number of devices that the user has chosen stays as it is.
    """
    if not overlap:
        return agent
    devices = num_devices(agent, env, num_steps)
    chosen = any(learner.program.devices is not None for learner, _ in agent.learners(env.num_streams))
    if chosen or devices < sharding.num_cores():
        return agent
    return with_devices(agent, max((d for d in range(1, devices) if devices % d == 0), default=1))


def host_metric_names(agent: Agent, env: HostEnv, state: TrainState) -> tuple[str, ...]:
    """Return the names of the training metrics, without compiling; `state` may be shapes."""
    return (*_argument_shapes(agent, env, state)[6].names, *STAGES)


def _counters(state: TrainState) -> TrainState:
    """Return `state` without learner and actor, as a cheap argument: only its key and counters are left."""
    none: dict[str, Any] = {"learner": None, "actor": None}
    return dataclasses.replace(state, **none)


def _inputs(
    agent: Agent, state: TrainState, total_iterations: Array, ahead: tuple[Any, Any] = NONE_AHEAD
) -> tuple[IterationInputs, Key]:
    """Return the inputs of an iteration, and a random key for the seeds of environment resets.

    `ahead` is the number of iterations and of environment steps that `state` does not count yet.
    """
    iteration, env_steps = state.iteration + ahead[0], counter.add(state.env_steps, ahead[1])
    state = dataclasses.replace(state, iteration=iteration, env_steps=env_steps)
    inputs = iteration_inputs(agent, state, total_iterations)
    return inputs, jax.random.fold_in(jax.random.clone(inputs.collect_key), RESET)


def _finish(
    agent: Agent,
    total_iterations: Array,
    env: HostEnv,
    state: TrainState,
    actor: ActorState,
    rollout: HostRollout,
    totals: Summary | None,
    acted: LearnerState,
) -> Trained:
    """Return the state after an iteration whose rollout was collected from `actor`, and its metrics.

    `totals` are the metrics summed over earlier iterations, to which the metrics of this one are added; None: there are
    none. `acted` is the learner whose policy acted: that of `state`, or with `overlap` the one before it.
    """
    inputs = iteration_inputs(agent, state, total_iterations)  # the same as on the host
    state = dataclasses.replace(state, actor=actor)
    devices = num_devices(inputs.agent, env, state.num_steps)
    own_envs = dataclasses.replace(env, num_envs=env.num_envs // devices)

    def share(inputs: IterationInputs, state: TrainState, rollout: HostRollout, acted: LearnerState) -> Trained:
        return finish_iteration(inputs, own_envs, state, collected_from(inputs.agent, acted, state.actor, rollout))

    if devices == 1:
        after, metrics = share(inputs, state, rollout, acted)
    else:
        specs = state_specs(state)
        in_specs, out_specs = (SAME, specs, _rollout_specs(), SAME), Trained(specs, SAME)  # type: ignore[arg-type]
        after, metrics = sharding.split(share, devices, in_specs, out_specs)(inputs, state, rollout, acted)
    accepted = after.iteration > state.iteration
    return Trained(after, metrics if totals is None else add_up(totals, metrics, accepted))


def _argument_shapes(agent: Agent, env: HostEnv, state: TrainState) -> tuple[Any, ...]:
    """Return the shapes of the arguments of `_finish`, the program that computes values of a rollout and the update.

    The shapes are known before any rollout, so that the program can be compiled ahead of the first one.
    """
    actor, num_steps = state.actor, state.num_steps
    decision = jax.eval_shape(
        agent.act, state.learner, actor.carry, actor.obs, actor.first, actor.action_mask, state.key
    )

    def stack(tree: PyTree, count: int) -> PyTree:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), tree)

    obs, first, mask = stack((actor.obs, actor.first, actor.action_mask), num_steps + 1)
    flag, number = stack((actor.first, actor.reward_trace), num_steps)
    memory = remembered(actor.carry)
    carry = stack(memory, num_steps // agent.sequence_length(num_steps)) if jax.tree.leaves(memory) else no_carry(env)
    final_value = number if env.host.has_final_obs else None
    episode_stats = EpisodeStats(number, flag) if env.host.spec.has_episode_stats else None
    metrics = dict.fromkeys(env.host.spec.metrics, number)
    until: Any = jax.ShapeDtypeStruct(flag.shape, np.int32)
    played = Played(number, flag, flag, flag, flag, until) if env.host.spec.turns else None
    rollout = HostRollout(
        obs=obs,
        first=first,
        mask=mask,
        action=stack(decision.action, num_steps),
        reward=number,
        terminated=flag,
        truncated=flag,
        valid=flag,
        final_value=final_value,
        episode_stats=episode_stats,
        carry=carry,
        last_carry=actor.carry,
        metrics=metrics,
        env_state=actor.env_state,
        played=played,
        logged=flag if env.host.spec.stagger else None,
    )
    one = np.int32(1)
    totals = jax.eval_shape(renewed(_finish), agent, one, env, state, actor, rollout, None, state.learner).metrics
    return agent, one, env, state, actor, rollout, totals, state.learner


def _rollout_specs() -> HostRollout:
    """Return the sharding of each field of a rollout, which is split by stream (one agent in one environment)."""
    steps = PartitionSpec(None, AXIS)
    specs: dict[str, Any] = dict.fromkeys(HostRollout._fields, steps) | {"last_carry": SPLIT, "env_state": SPLIT}
    return HostRollout(**specs)


def _argument_shardings(state: TrainState, devices: int) -> Any:
    """Return the shardings of the arguments of `_finish`, the update program; None on one device."""
    if devices == 1:
        return None
    return sharding.shardings((SAME, SAME, None, state_specs(state), SPLIT, _rollout_specs(), SAME, SAME), devices)
