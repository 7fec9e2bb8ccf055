"""Training on host environments: the agent's `act` in a loop of Python, `update` and all counting as one program.

Log-probabilities and values are not fetched while acting: the program that learns computes those of the whole rollout
at once, from the same parameters.
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

from ppax.agents.independent import Independent
from ppax.agents.multi_agent import HostAgent, require_host_agent
from ppax.arrays.metrics import Summary, nothing
from ppax.arrays.sequences import to_sequences
from ppax.collection import Collected, Row, no_episodes, update_episode_stats, with_last_value
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.arrays import EpisodeStats
from ppax.host.play import Played, play, take_up
from ppax.host.policy import HostPolicy, Observed, make_policy
from ppax.ppo import PPO
from ppax.program import sharding
from ppax.program.layout import compiler_options
from ppax.program.sharding import AXIS, SAME, SPLIT
from ppax.training import (
    IterationInputs,
    Trained,
    add_up,
    averaged,
    finish_iteration,
    iteration_inputs,
    num_devices,
    state_specs,
)
from ppax.types import ActorState, Key, LearnerState, PyTree, TrainState, Transition

RESET = 2**32 - 2  # folded into the key of a rollout: the seeds of environments that begin anew


class HostTraining:
    """Trains like the program of `ppax.compile`; call it like `ppax.train`.

    Where `stop` is set, or after `chunk_seconds`, it ends after the iteration that is running. An EnvError has in
    `reached` what the iterations before it gave.
    """

    chunk_seconds = math.inf

    def __init__(self, agent: HostAgent, env: HostEnv, state: TrainState, stop: threading.Event | None = None):
        begin = time.perf_counter()
        self._stop, self._devices = stop or threading.Event(), num_devices(agent, env, state.num_steps)
        shapes = _shapes(agent, env, sharding.shapes_of(state, state_specs(state), 1))
        self._plan = jax.jit(_plan).lower(agent, _clocks(shapes[3]), np.int32(1)).compile()
        self.policy: HostPolicy = make_policy(agent, env, state.learner)
        self._value, self._averaged = jax.jit(_value), jax.jit(averaged)  # of the first, sizes depend on what happens
        where, options = _where(state, self._devices), _options()
        # puts what a rollout brings, and an agent's numbers, on the devices on which the program runs
        self.put: Any = lambda *given: given
        self._put_agent: Any = lambda agent: agent
        self._seen: tuple[Any, Any] = (None, None)  # the agent of the last call, and what was put for it
        if where is not None:
            options["in_shardings"] = where
            self.put = lambda *given: jax.device_put(given, where[4:])
            self._put_agent = lambda agent: jax.device_put(agent, where[0])
        self.program: Any = jax.jit(_learn, **options).lower(*shapes).compile()
        self._nothing = nothing(shapes[-1])
        self._averaged(self._nothing, 1)
        self.compile_seconds = time.perf_counter() - begin

    def __call__(
        self,
        agent: HostAgent,
        env: HostEnv,
        state: TrainState,
        num_iterations: int,
        total_iterations: int | None = None,
    ) -> Trained:
        """Run `num_iterations` iterations, at least one; see `ppax.train`."""
        if total_iterations is None:
            total_iterations = int(state.iteration) + num_iterations
        length = agent.sequence_length(state.num_steps)
        if self._seen[0] is not agent:
            self._seen = agent, self._put_agent(agent)
        totals, done, total = self._nothing, 0, np.int32(total_iterations)
        first, until = int(state.iteration), time.monotonic() + self.chunk_seconds
        while done < num_iterations and not (done and (self._stop.is_set() or time.monotonic() > until)):
            here = state if self._devices == 1 else local(state)
            now, reset_key = self._plan(agent, _clocks(here), total)
            self.policy.begin(now.agent, here.learner, state.num_steps, now.collect_key)  # waits for the last update
            if int(state.iteration) < first + done:
                break  # the last iteration was not taken
            begun = now.agent, here.learner
            try:
                actor = take_up(agent, env, here.actor, reset_key)
                played = play(self.policy, self._value, env, actor, state.num_steps, length, begun)
            except EnvError as error:
                error.reached = Trained(state, self._averaged(totals, done)) if done else None
                raise
            actor = state.actor if actor is here.actor else actor  # which is on the devices already
            state, totals = self.program(self._seen[1], total, env, state, *self.put(actor, played, totals))
            done += 1
        return Trained(state, self._averaged(totals, int(state.iteration) - first))


def _options() -> dict[str, Any]:
    return {"compiler_options": compiler_options()}


def metric_names(agent: HostAgent, env: HostEnv, state: TrainState) -> tuple[str, ...]:
    """Names of the metrics of training; nothing is compiled, `state` may be shapes."""
    return _shapes(agent, env, state)[-1].names


def local(tree: Any) -> Any:
    """Arrays that several devices have, or share, as arrays of the first one or of NumPy."""

    def one(x: Any) -> Any:
        if not isinstance(x, Array) or len(x.sharding.device_set) == 1:
            return x
        return x.addressable_data(0) if x.is_fully_replicated else np.asarray(x)

    return jax.tree.map(one, tree)


def _clocks(state: TrainState) -> TrainState:
    """What of a state decides how an iteration begins: a small argument of a program that is called often."""
    none: dict[str, Any] = {"learner": None, "actor": None}
    return dataclasses.replace(state, **none)


def _plan(agent: HostAgent, state: TrainState, total_iterations: Array) -> tuple[IterationInputs, Key]:
    """What an iteration begins with, and a key for the seeds of environments that begin anew."""
    now = iteration_inputs(agent, state, total_iterations)
    return now, jax.random.fold_in(jax.random.clone(now.collect_key), RESET)


def _value(agent: HostAgent, learner: LearnerState, seen: Observed) -> Array:
    """V [e] of what a group sees."""
    return agent.policy(learner, *seen).value


# ---------------------------------------------------------------- what is compiled


def _learn(
    agent: PPO,
    total_iterations: Array,
    env: HostEnv,
    state: TrainState,
    actor: ActorState,
    played: Played,
    totals: Summary | None,
) -> Trained:
    """An iteration after its rollout was played from `actor`; metrics are added to `totals`, where these are given."""
    now = iteration_inputs(agent, state, total_iterations)  # as the host has it: from the same clocks
    state = dataclasses.replace(state, actor=actor)
    devices = num_devices(now.agent, env, state.num_steps)
    own = dataclasses.replace(env, num_envs=env.num_envs // devices)

    def share(now: IterationInputs, state: TrainState, played: Played) -> Trained:
        return finish_iteration(now, own, state, _collected(require_host_agent(now.agent), state, played))

    if devices == 1:
        after, metrics = share(now, state, played)
    else:
        specs = state_specs(state)
        in_specs: Any = (SAME, specs, _played_specs())
        after, metrics = sharding.split(share, devices, in_specs, Trained(specs, SAME))(now, state, played)  # type: ignore[arg-type]
    taken = after.iteration > state.iteration
    return Trained(after, metrics if totals is None else add_up(totals, metrics, taken))


def _played_specs() -> Played:
    """How a rollout is split over devices: by streams."""
    steps = PartitionSpec(None, AXIS)
    specs: dict[str, Any] = dict.fromkeys(Played._fields, steps) | {"last_carry": SPLIT, "env_state": SPLIT}
    return Played(**specs)


def _where(state: TrainState, devices: int) -> Any:
    """On which devices the arguments of `_learn` lie; None: there is one."""
    if devices == 1:
        return None
    return sharding.shardings((SAME, SAME, None, state_specs(state), SPLIT, _played_specs(), SAME), devices)


def _collected(agent: HostAgent, state: TrainState, played: Played) -> Collected:
    """What `ppax.collect` would have given for these steps."""
    learner, actor = state.learner, state.actor
    before, after = (jax.tree.map(lambda x, cut=cut: x[cut], played[:3]) for cut in (slice(-1), -1))
    unknown = jnp.zeros(played.valid.shape, jnp.float32)
    seen: dict[str, Any] = {name: getattr(played, name) for name in ("action", "terminated", "valid", "cut_value")}
    steps = Transition(
        obs=before[0],
        log_prob=unknown,
        value=unknown,
        reward=jnp.where(played.valid, played.reward, 0.0),  # a step that was none may hold anything
        truncated=played.truncated & ~played.terminated,
        first=before[1],
        action_mask=before[2],
        carry=played.carry,
        **seen,
    )
    value, log_prob = _judge(agent, learner, steps)
    steps = dataclasses.replace(steps, value=value, log_prob=log_prob)

    discount = agent.discount(actor.first.shape[0])

    def count(running: Any, step: Any) -> Any:
        return update_episode_stats(discount, running, *step)

    begun = actor, no_episodes(actor.first.shape[0])
    counted = steps.reward, steps.ended, steps.valid, played.episode_stats
    (actor, episodes), traces = jax.lax.scan(count, begun, counted)
    obs, first, mask = after
    actor = actor._replace(env_state=played.env_state, obs=obs, first=first, action_mask=mask, carry=played.last_carry)
    return with_last_value(agent, learner, (actor, episodes), Row(steps, traces))


def _judge(agent: HostAgent, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
    """V and log-probability [T, B] of what was done, by the networks that did it."""
    if isinstance(agent, Independent):
        judged: tuple[Array, Array] = jax.vmap(_judge_one)(agent.players(), learner, agent.own(steps))
        return agent.together(judged)
    return _judge_one(agent, learner, steps)


def _judge_one(agent: PPO, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
    num_steps, streams = steps.valid.shape
    starts = to_sequences(steps.carry, 1)
    length = agent.sequence_length(num_steps) if jax.tree.leaves(starts) else 1
    sequences = dataclasses.replace(to_sequences(dataclasses.replace(steps, carry=()), length), carry=starts)
    at_once = max(
        1, agent.program.rows(length, agent.compute_dtype, steps.obs) // length
    )  # as in the update: activations stay in the cache
    if at_once >= num_steps * streams // length:
        judged = agent.evaluate_actions(learner, sequences)
    else:
        one = lambda rows: agent.evaluate_actions(learner, jax.tree.map(lambda x: x[None], rows))  # noqa: E731
        judged = jax.tree.map(lambda x: x[:, 0], jax.lax.map(one, sequences, batch_size=at_once))
    value, log_prob = (jnp.swapaxes(x.reshape(streams, num_steps), 0, 1) for x in judged)
    return value, log_prob


# ---------------------------------------------------------------- shapes, before anything is played


def _shapes(agent: HostAgent, env: HostEnv, state: TrainState) -> tuple[Any, ...]:
    """Shapes of the arguments of `_learn`."""
    actor, num_steps = state.actor, state.num_steps
    decision = jax.eval_shape(
        agent.act, state.learner, actor.carry, actor.obs, actor.first, actor.action_mask, state.key
    )

    def stack(tree: PyTree, count: int) -> PyTree:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), tree)

    obs, first, mask = stack((actor.obs, actor.first, actor.action_mask), num_steps + 1)
    flag, number = stack((actor.first, actor.reward_trace), num_steps)
    carry = stack(actor.carry, num_steps // agent.sequence_length(num_steps)) if jax.tree.leaves(actor.carry) else ()
    cuts = number if env.host.cuts else None
    episode_stats = EpisodeStats(number, flag) if env.host.example.tallies else None
    steps = (stack(decision.action, num_steps), number, flag, flag, flag, cuts, episode_stats)
    played = Played(obs, first, mask, *steps, carry, actor.carry, actor.env_state)
    arguments = agent, np.int32(1), env, state, actor, played
    return *arguments, jax.eval_shape(_learn, *arguments, None).metrics
