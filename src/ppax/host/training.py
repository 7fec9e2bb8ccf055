"""Training on host environments: a Python loop collects each rollout; one compiled program does the rest.

That program computes action log-probabilities and values of the whole rollout from the parameters that acted, then the
update, metrics and episode statistics. So they need not be transferred at every step.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ppax.arrays.metrics import Summary, add_up, averaged, nothing
from ppax.collection import Row, no_episodes, update_episode_stats, with_last_value
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.arrays import EpisodeStats
from ppax.host.collection import HostRollout
from ppax.host.policy import PolicyInputs
from ppax.host.resets import reset_if_needed
from ppax.host.rows import no_carry
from ppax.host.tensors import collector_of
from ppax.learning.exploration import remembered
from ppax.program import sharding
from ppax.program.layout import compiler_options
from ppax.program.sharding import AXIS, SAME, SPLIT
from ppax.protocols import Agent
from ppax.training import (
    STAGES,
    IterationInputs,
    Trained,
    finish_iteration,
    iteration_inputs,
    num_devices,
    state_specs,
)
from ppax.types import ActorState, Collected, Key, LearnerState, PyTree, TrainState, Transition

RESET = 2**32 - 2  # folded into the rollout's key for the seeds of environment resets


class HostTraining:
    """Compiled training on host environments, called like `ppax.train`.

    When `stop` is set, or after `chunk_seconds`, it returns after the current iteration. An EnvError carries the result
    of the iterations completed before it in its attribute `reached`. `collect_seconds` is the time that the latest call
    spent on rollouts; in the rest it waited for updates.
    """

    chunk_seconds = math.inf
    collect_seconds = 0.0

    def __init__(self, agent: Agent, env: HostEnv, state: TrainState, stop: threading.Event | None = None):
        begin = time.perf_counter()
        self._stop, self._devices = stop or threading.Event(), num_devices(agent, env, state.num_steps)
        shapes = _shapes(agent, env, sharding.shapes_of(state, state_specs(state), 1))
        self._inputs = jax.jit(_inputs).lower(agent, _counters(shapes[3]), np.int32(1)).compile()
        annealed = jax.eval_shape(_inputs, agent, _counters(shapes[3]), np.int32(1))[0].agent
        self.policy, self._collect = collector_of(annealed, env, state.learner)
        # not ahead of time: batch sizes of `value_of` vary
        self._value, self._averaged = jax.jit(value_of), jax.jit(averaged)
        shardings, options = _argument_shardings(state, self._devices), _options()
        # Transfers of rollouts, and of an agent's hyperparameters, to the program's devices
        self.put: Any = lambda *arguments: arguments
        self._put_agent: Any = lambda agent: agent
        self._placed: tuple[Any, Any] = (None, None)  # agent of the last call, and its copy on the devices
        if shardings is not None:
            options["in_shardings"] = shardings
            self.put = lambda *arguments: jax.device_put(arguments, shardings[4:])
            self._put_agent = lambda agent: jax.device_put(agent, shardings[0])
        self.program: Any = jax.jit(_finish, **options).lower(*shapes).compile()
        self._nothing = nothing(shapes[-1])
        self.metric_names: tuple[str, ...] = (*shapes[-1].names, *STAGES)
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
        """Run `num_iterations` iterations, at least one; see `ppax.train`. Raises EnvError if an environment fails."""
        if total_iterations is None:
            total_iterations = int(state.iteration) + num_iterations
        length = agent.sequence_length(state.num_steps)
        if self._placed[0] is not agent:
            self._placed = agent, self._put_agent(agent)
        totals, done, total = self._nothing, 0, np.int32(total_iterations)
        first, until, self.collect_seconds = int(state.iteration), time.monotonic() + self.chunk_seconds, 0.0
        while done < num_iterations and not (done and (self._stop.is_set() or time.monotonic() > until)):
            here = state if self._devices == 1 else sharding.local(state)
            inputs, reset_key = self._inputs(agent, _counters(here), total)
            self.policy.begin(
                inputs.agent, here.learner, state.num_steps, inputs.collect_key
            )  # waits for the last update
            if int(state.iteration) < first + done:
                break  # the last iteration was discarded
            parameters, begin = (inputs.agent, here.learner), time.perf_counter()
            try:
                actor = reset_if_needed(agent, env, here.actor, reset_key)
                rollout = self._collect(self.policy, self._value, env, actor, state.num_steps, length, parameters)
            except EnvError as error:
                error.reached = Trained(state, self._averaged(totals, done)) if done else None
                raise
            self.collect_seconds += time.perf_counter() - begin
            actor = state.actor if actor is here.actor else actor  # already on the devices
            state, totals = self.program(self._placed[1], total, env, state, *self.put(actor, rollout, totals))
            done += 1
        return Trained(state, self._averaged(totals, int(state.iteration) - first))


def _options() -> dict[str, Any]:
    return {"compiler_options": compiler_options()}


def metric_names(agent: Agent, env: HostEnv, state: TrainState) -> tuple[str, ...]:
    """Return the names of the training metrics, without compiling; `state` may be shapes."""
    return (*_shapes(agent, env, state)[-1].names, *STAGES)


def _counters(state: TrainState) -> TrainState:
    """Return `state` without learner and actor: the fields that `iteration_inputs` reads, a cheap argument."""
    none: dict[str, Any] = {"learner": None, "actor": None}
    return dataclasses.replace(state, **none)


def _inputs(agent: Agent, state: TrainState, total_iterations: Array) -> tuple[IterationInputs, Key]:
    """Return the inputs of an iteration, and a key for the seeds of environment resets."""
    inputs = iteration_inputs(agent, state, total_iterations)
    return inputs, jax.random.fold_in(jax.random.clone(inputs.collect_key), RESET)


def value_of(agent: Agent, learner: LearnerState, inputs: PolicyInputs) -> Array:
    """Return V [e] of the observations of a batch."""
    return agent.policy(learner, *inputs).value


def _finish(
    agent: Agent,
    total_iterations: Array,
    env: HostEnv,
    state: TrainState,
    actor: ActorState,
    rollout: HostRollout,
    totals: Summary | None,
) -> Trained:
    """Finish an iteration whose rollout was collected from `actor`; add its metrics to `totals`, if given."""
    inputs = iteration_inputs(agent, state, total_iterations)  # the same as on the host
    state = dataclasses.replace(state, actor=actor)
    devices = num_devices(inputs.agent, env, state.num_steps)
    own_envs = dataclasses.replace(env, num_envs=env.num_envs // devices)

    def share(inputs: IterationInputs, state: TrainState, rollout: HostRollout) -> Trained:
        return finish_iteration(inputs, own_envs, state, collected_from(inputs.agent, state, rollout))

    if devices == 1:
        after, metrics = share(inputs, state, rollout)
    else:
        specs = state_specs(state)
        in_specs: Any = (SAME, specs, _played_specs())
        after, metrics = sharding.split(share, devices, in_specs, Trained(specs, SAME))(inputs, state, rollout)  # type: ignore[arg-type]
    accepted = after.iteration > state.iteration
    return Trained(after, metrics if totals is None else add_up(totals, metrics, accepted))


def _played_specs() -> HostRollout:
    """Sharding specs of a rollout: by stream."""
    steps = PartitionSpec(None, AXIS)
    specs: dict[str, Any] = dict.fromkeys(HostRollout._fields, steps) | {"last_carry": SPLIT, "env_state": SPLIT}
    return HostRollout(**specs)


def _argument_shardings(state: TrainState, devices: int) -> Any:
    """Return the shardings of the arguments of `_finish`; None for one device."""
    if devices == 1:
        return None
    return sharding.shardings((SAME, SAME, None, state_specs(state), SPLIT, _played_specs(), SAME), devices)


def collected_from(agent: Agent, state: TrainState, rollout: HostRollout) -> Collected:
    """Convert a rollout of the host to the result of `ppax.collect`: values, log-probabilities, episode statistics."""
    learner, actor = state.learner, state.actor
    before, after = (jax.tree.map(lambda x, cut=cut: x[cut], rollout[:3]) for cut in (slice(-1), -1))
    unknown = jnp.zeros(rollout.valid.shape, jnp.float32)
    stored: dict[str, Any] = {name: getattr(rollout, name) for name in ("action", "terminated", "valid", "final_value")}
    steps = Transition(
        obs=before[0],
        log_prob=unknown,
        value=unknown,
        reward=jnp.where(rollout.valid, rollout.reward, 0.0),  # rewards of invalid steps are undefined
        truncated=rollout.truncated & ~rollout.terminated,
        first=before[1],
        action_mask=before[2],
        carry=rollout.carry,
        **stored,
    )
    value, log_prob = agent.evaluate_rollout(learner, steps)
    steps = dataclasses.replace(steps, value=value, log_prob=log_prob)

    discount = agent.discount(actor.first.shape[0])

    def count(running: Any, step: Any) -> Any:
        return update_episode_stats(discount, running, *step)

    initial = actor, no_episodes(actor.first.shape[0])
    inputs = steps.reward, steps.ended, steps.valid, rollout.episode_stats
    (actor, episodes), traces = jax.lax.scan(count, initial, inputs)
    obs, first, mask = after
    ended_with: dict[str, Any] = {"env_state": rollout.env_state, "carry": rollout.last_carry}
    actor = actor._replace(obs=obs, first=first, action_mask=mask, **ended_with)
    over = steps.ended if rollout.episode_stats is None else rollout.episode_stats.over
    metrics = {name: jnp.where(over, x, 0.0) for name, x in rollout.metrics.items()}
    return with_last_value(agent, learner, (actor, episodes), Row(steps, traces, metrics))


def _shapes(agent: Agent, env: HostEnv, state: TrainState) -> tuple[Any, ...]:
    """Return the shapes of the arguments of `_finish` (the last one: of its metrics), before any rollout."""
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
    steps = (stack(decision.action, num_steps), number, flag, flag, flag, final_value, episode_stats)
    metrics = dict.fromkeys(env.host.spec.metrics, number)
    rollout = HostRollout(obs, first, mask, *steps, carry, actor.carry, metrics, actor.env_state)
    arguments = agent, np.int32(1), env, state, actor, rollout
    return *arguments, jax.eval_shape(_finish, *arguments, None).metrics
