"""Training as pure functions, which may be put under `jax.jit`, or under `jax.vmap` over seeds or hyperparameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.agents.metrics import EPISODE_METRICS, EVALUATED, annealed_numbers, episode_metrics, with_names
from ppax.agents.precision import in_training
from ppax.arrays import counter
from ppax.arrays.metrics import Summary, add_up, averaged, merged, nothing, pack, reduced
from ppax.arrays.sequences import nearest_divisors, where_rows, zero_rows
from ppax.core.options import check_numbers, require_whole
from ppax.core.protocols import Agent
from ppax.core.types import Collected, ConfigError, Key, PyTree, Rollout, TrainState, Transition
from ppax.core.unknown_names import refusing_unknown
from ppax.devices import sharding
from ppax.devices.sharding import SAME, SPLIT
from ppax.devices.tracing import renewed
from ppax.envs import Env, require_native, scheduled
from ppax.envs.adaptive_ranges import adapt_ranges, first_ranges
from ppax.envs.curriculum import Scheduled, at_start
from ppax.envs.vector import VectorEnv
from ppax.ppo.forward import remembered
from ppax.training.arguments import require_arguments, require_consistent, require_fit, require_key, require_limits
from ppax.training.collection import collect, force_reset, start_actor
from ppax.training.finiteness import bad_leaves, either, not_finite

LOOPS = "call ppax.fit(agent, env, total_steps), or ppax.compile(agent, env, state), which is called like ppax.train"
# Columns of time and memory in log rows, which differ between two runs of one configuration; STAGES: on the host only
MEASURED = ("steps_per_second", "seconds", "iteration_ms", "compile_seconds", "memory_mb")
STAGES = ("collect_ms", "update_ms")
RESTART = 2**32 - 1  # folded into the rollout's key for forced resets; larger than any number that `stream_keys` uses


class Trained(NamedTuple):
    """State after some iterations, and their metrics, each reduced over the iterations to one number."""

    state: TrainState
    metrics: Summary  # a mapping: metrics["episode_return"]


def make_key(seed: int) -> Key:
    """Return a random key made from all 64 bits of `seed`, of which `jax.random.key` would keep 32.

    Raises ConfigError for seeds outside of 0 to 2^64 - 1.
    """
    if not 0 <= seed < 2**64:
        nearest = 0 if seed < 0 else 2**64 - 1
        raise ConfigError(f"seed = {seed}: must be from 0 to 2^64 - 1; nearest valid value: {nearest}")
    key = jax.random.key(seed % 2**32)
    return jax.random.fold_in(key, seed >> 32) if seed >> 32 else key


@refusing_unknown
def start(agent: Agent, env: Env, num_steps: int, key: Key, iterations_per_env_reset: int | None = None) -> TrainState:
    """Return the state before the first iteration: initialised weights and freshly reset environments.

    `num_steps` is the length of a rollout. Every `iterations_per_env_reset` iterations all episodes are truncated and
    all environments reset; None, 0 or a negative number turns this off. Raises ConfigError if sizes do not fit each
    other (for example, minibatches do not divide the rollout), if a number that is not traced by JAX is out of range,
    or if the network was made for other spaces.
    """
    check_sizes(agent, env, num_steps)
    require_key(key)
    if iterations_per_env_reset is not None:
        require_whole(iterations_per_env_reset, "iterations_per_env_reset", low=None)
    if not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(agent)):
        require_consistent(agent)
    learner_key, actor_key, run_key = jax.random.split(key, 3)
    ranges = first_ranges(env)
    state = TrainState(
        learner=agent.init(env.observation_space, learner_key),
        actor=start_actor(agent, at_start(env, ranges), actor_key),
        key=run_key,
        iteration=jnp.int32(0),
        env_steps=counter.zero(),
        num_steps=num_steps,
        iterations_per_env_reset=iterations_per_env_reset,
        ranges=ranges,
    )
    # Copies, as two fields may hold the same array (an environment may return its state as its observation), and one
    # buffer cannot be donated twice
    return place_state(agent, env, jax.tree.map(jnp.copy, allocated(agent, state)))


def allocated(agent: Agent, state: TrainState) -> TrainState:
    """Return `state` with zeros for arrays that the first update would add to the learner, such as stored rollouts.

    The state then has the same structure before and after every update.
    """
    extensions = [one for ppo, _ in agent.learners(state.actor.first.shape[0]) for one in ppo.extensions]
    if not any(extension.grows for extension in extensions):
        return state
    # shapes come from a whole update: how a rollout is split among learners is known to the agent alone
    after = jax.eval_shape(lambda key: agent.update(state.learner, _rollout(agent, state), key), jax.random.key(0))
    present = dict(jax.tree_util.tree_leaves_with_path(state.learner))

    def one(path: Any, shape: Any) -> Any:
        return present[path] if path in present else jnp.zeros(shape.shape, shape.dtype)

    return dataclasses.replace(state, learner=jax.tree_util.tree_map_with_path(one, after.learner))


def _rollout(agent: Agent, state: TrainState) -> Rollout:
    """Return a rollout with the shapes of those in training, by copying the current step of `state` instead of playing.

    An update traced with it shows which arrays the update adds to the learner.
    """
    actor, length = state.actor, agent.sequence_length(state.num_steps)

    def stacked(tree: PyTree, count: int = state.num_steps) -> PyTree:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), tree)

    def action(key: Key) -> PyTree:
        return agent.act(state.learner, actor.carry, actor.obs, actor.first, actor.action_mask, key).action

    number, flag = stacked(actor.reward_trace), stacked(actor.first)
    steps = Transition(
        obs=stacked(actor.obs),
        action=stacked(action(jax.random.key(0))),
        log_prob=number,
        value=number,
        reward=number,
        terminated=flag,
        truncated=flag,
        first=flag,
        valid=flag,
        carry=stacked(remembered(actor.carry), state.num_steps // length),
        action_mask=stacked(actor.action_mask),
    )
    return Rollout(steps, actor.reward_trace, number, actor.obs, actor.extensions)


def place_state(agent: Agent, env: Env, state: TrainState) -> TrainState:
    """Return `state` with its arrays on the devices on which `train` runs, sharded as it needs them."""
    return sharding.place_on_devices(state, state_specs(state), num_devices(agent, env, state.num_steps))


def num_devices(agent: Agent, env: Env, num_steps: int) -> int:
    """Return the number of devices over which `train` shards the environments and every minibatch.

    Raises ConfigError for groups of agents whose options name different numbers.
    """
    programs = []
    for ppo, streams in agent.learners(env.num_streams):
        length = ppo.sequence_length(num_steps)
        minibatch = ppo.minibatch_size(num_steps, streams)
        programs.append((ppo.program, (env.num_envs, minibatch, length)))
    given = {program.num_devices(*sizes) for program, sizes in programs if program.devices is not None}
    if len(given) > 1:
        raise ConfigError(f"program.devices: groups on {sorted(given)} devices; must be the same number for all")
    same = {"devices": given.pop()} if given else {}  # also for groups that name no number
    return math.gcd(*(dataclasses.replace(program, **same).num_devices(*sizes) for program, sizes in programs))


def state_specs(state: TrainState) -> TrainState:
    """Return the sharding of each field of a TrainState: `actor` is split by environment, all else is replicated."""
    specs: dict[str, Any] = {"learner": SAME, "actor": SPLIT, "key": SAME, "iteration": SAME, "env_steps": SAME}
    return dataclasses.replace(state, **specs, ranges=SAME)


@refusing_unknown
def train(
    agent: Agent,
    env: VectorEnv,
    state: TrainState,
    num_iterations: int | Array,
    total_iterations: int | Array | None = None,
) -> Trained:
    """Return the state after `num_iterations` iterations, each of one rollout and one update, and their metrics.

    Metrics are scalars, mostly means over the iterations; docs/metrics.md says what each is (`episode_return` and
    `episode_length`: means over finished episodes, NaN where none finished). They are summed in float32: the relative
    error of a mean is about 1e-5 over 1,000 iterations of one call, 1e-3 over 100,000 and 1e-2 over a million; for
    exact means of longer training, call it several times. Memory use does not depend on `num_iterations`. Schedules are
    given the progress `iteration / total_iterations`; by default training ends after these iterations. Raises
    ConfigError for host environments, which a compiled program cannot step.

    An iteration is discarded if its rollout, gradient or new weights are not finite: the whole state before it is kept
    with its key, so the same iteration would fail again; `state.iteration` does not advance, and the metric `grad_norm`
    is NaN, by which `ppax.fit` notices and stops.
    """
    require_native(env, "ppax.train", LOOPS)
    if total_iterations is None:
        total_iterations = state.iteration + num_iterations

    devices = num_devices(agent, env, state.num_steps)
    number, total = jnp.int32(num_iterations), jnp.int32(total_iterations)
    if devices == 1:
        return _train(agent, env, state, number, total)
    shard = dataclasses.replace(env, num_envs=env.num_envs // devices)

    def train_shard(agent: Agent, state: TrainState, number: Array, total: Array) -> Trained:
        return _train(agent, shard, state, number, total)

    specs = state_specs(state)
    run = sharding.split(train_shard, devices, (SAME, specs, SAME, SAME), Trained(specs, SAME))  # type: ignore[arg-type]
    return run(agent, state, number, total)


def _train(agent: Agent, env: VectorEnv, state: TrainState, num_iterations: Array, total: Array) -> Trained:
    """Return the result of `ppax.train` on one device, which trains in its share of the environments.

    `total` is the number of iterations of the whole training, for schedules.
    """
    jitted_iteration = jax.jit(renewed(iteration))  # so that `eval_shape` and the loop below trace it once

    def iterate(_: Array, carried: tuple[TrainState, Summary]) -> tuple[TrainState, Summary]:
        before, totals = carried
        after, metrics = jitted_iteration(agent, env, before, total)
        return after, add_up(totals, metrics, after.iteration > before.iteration)

    shapes = jax.eval_shape(jitted_iteration, agent, env, state, total).metrics
    first_iteration = state.iteration
    state, sums = jax.lax.fori_loop(0, num_iterations, iterate, (state, nothing(shapes)))
    return Trained(state, averaged(sums, state.iteration - first_iteration))


class IterationInputs(NamedTuple):
    """Inputs of one iteration besides the state: annealed agent, random keys, and annealed numbers for the log."""

    agent: Agent  # annealed
    key: Key  # `TrainState.key` after this iteration
    collect_key: Key
    update_keys: Key  # [num_epochs]
    numbers: Mapping[str, Array] = {}  # numbers that schedules change, by path


def iteration_inputs(agent: Agent, state: TrainState, total_iterations: int | Array) -> IterationInputs:
    """Return the agent with its annealed numbers, such as the learning rate, and the iteration's random keys.

    The numbers are those for the iteration of `state` out of `total_iterations`.
    """
    keys = jax.random.split(state.key, 2 + agent.num_epochs)
    key, collect_key, update_keys = keys[0], keys[1], keys[2:]
    progress = state.iteration / total_iterations
    env_steps = counter.to_float(state.env_steps)
    annealed, numbers = agent.annealed(progress, env_steps), annealed_numbers(agent, progress, env_steps)
    return IterationInputs(annealed, key, collect_key, update_keys, numbers)


def annealed_env(env: Env, state: TrainState, total_iterations: int | Array) -> Scheduled:
    """Return the compiled environment with its scheduled parameters at the progress of `state`, and these parameters.

    Parameters are numbers such as gravity; scheduled ones change during training.
    """
    native, env_steps = require_native(env, "schedule", LOOPS), counter.to_float(state.env_steps)
    return scheduled(native, state.iteration / total_iterations, env_steps, state.ranges)


def iteration(agent: Agent, env: VectorEnv, state: TrainState, total_iterations: int | Array) -> Trained:
    """Return state and metrics after one iteration, of one rollout and one update in a compiled environment."""
    inputs = iteration_inputs(in_training(agent), state, total_iterations)
    env, numbers = annealed_env(env, state, total_iterations)
    inputs = inputs._replace(numbers={**inputs.numbers, **numbers})
    collected = collect(inputs.agent, env, state.learner, state.actor, state.num_steps, inputs.collect_key)
    return finish_iteration(inputs, env, state, collected)


def finish_iteration(inputs: IterationInputs, env: Env, state: TrainState, collected: Collected) -> Trained:
    """Return the state after an iteration whose rollout is `collected`, and its metrics.

    The steps after a rollout are the forced reset of all environments where it is due, the update and the metrics. If
    anything is not finite, the returned state is the one before the iteration.
    """
    agent = inputs.agent
    period = state.iterations_per_env_reset
    if period is not None and period > 0:
        due = (state.iteration + 1) % period == 0
        collected = force_reset(agent, env, collected, due, jax.random.fold_in(inputs.collect_key, RESTART))
    rollout, episodes = collected.rollout, collected.episodes
    update = agent.update(state.learner, rollout, inputs.update_keys)  # PPO: targets, epochs of minibatches (ppo.py)
    actor = collected.actor._replace(extensions=update.extensions)
    if update.current is not None:  # self-play: episodes of past selves are not logged
        episodes = zero_rows(update.current, episodes)
    if update.replaced is not None:  # self-play: a past self that takes over a stream begins with an empty memory
        initial = agent.start_carry(env.num_streams)
        actor = actor._replace(carry=jax.tree.map(where_rows, update.replaced, initial, actor.carry))
    ranges, episodes, of_ranges = adapt_ranges(env, state.ranges, episodes)

    metrics = with_names(update.metrics, env.num_agents, env.sizes, env.agent_names)
    of_episodes = episode_metrics(episodes, env.num_agents, env.sizes, env.agent_names)
    require_new_names(episodes.metrics, metrics)
    # the learning rate is a metric of the update already
    numbers = {name: x for name, x in {**inputs.numbers, **of_ranges}.items() if name not in metrics}
    metrics = merged(metrics, reduced("last", numbers), of_episodes)

    after = dataclasses.replace(
        state,
        learner=update.learner,
        actor=actor,
        key=inputs.key,
        iteration=state.iteration + 1,
        env_steps=counter.add(state.env_steps, sharding.total(rollout.steps.valid.sum(dtype=jnp.uint32))),
        ranges=ranges,
    )
    # Discard the whole iteration if anything is not finite: neither weights nor running statistics would recover
    bad_data = [mask.any() for mask in not_finite(env, rollout).values()]
    bad = [*bad_data, ~jnp.isfinite(metrics["grad_norm"]), *bad_leaves(update.learner)]
    accepted = sharding.total(jnp.stack(bad).any().astype(jnp.int32)) == 0
    return Trained(either(accepted, after, state), pack(metrics))


def require_new_names(own: Collection[str], others: Collection[str] = ()) -> None:
    """Raise ConfigError if a metric of the environment has the name of another metric, or a name that is no identifier.

    It is also raised if one of the update has the name of another column of log rows. `own` are the environment's
    metrics, `others` those of the update. Other metrics are also statistics of evaluations: the metric "x" of an
    environment is "x" in the scores of an evaluation, and "eval_x" in log rows.
    """
    columns = {*EPISODE_METRICS, *EVALUATED, "iteration", "env_steps", *MEASURED, *STAGES}
    for name in others:
        if name in columns:
            raise ConfigError(
                f"the agent's metric {name!r}: log rows have a column of this name already; give the metric or term of "
                f"your part another name, for example 'own_{name}'"
            )
    for name in own:
        column = f"eval_{name}"
        if name in {*others, *columns} or column in {*others, *columns, *own} or not name.isidentifier():
            raise ConfigError(
                f"the environment's metric {name!r}: must be a Python identifier and not the name of another metric, "
                f"also in evaluations ({column!r}); rename it, for example to "
                f"'env_{''.join(x if x.isalnum() else '_' for x in name)}'"
            )


def check_sizes(agent: Agent, env: Env, num_steps: int) -> None:
    """Raise ConfigError where agent, environment and sizes do not fit each other, with the nearest sizes that would.

    `num_steps` is the length of a rollout.
    """
    require_arguments(agent, env)
    require_fit(agent, env)
    require_whole(num_steps, "num_steps")
    require_limits(env, num_steps)
    check_numbers(agent)
    for place, (ppo, streams) in enumerate(agent.learners(env.num_streams)):
        group = f"groups.{env.sizes[place][0]}.agent: " if env.sizes else ""
        length = ppo.sequence_length(num_steps)
        if num_steps % length:
            divisors = nearest_divisors(num_steps, length)
            raise ConfigError(f"{group}seq_len = {length} does not divide num_steps = {num_steps}; {divisors}")
        try:
            minibatch = ppo.minibatch_size(num_steps, streams)
            ppo.program.num_devices(env.num_envs, minibatch, length)
        except ConfigError as error:
            sizes = f"num_steps {num_steps} * streams {streams} / seq_len {length}"
            raise ConfigError(f"{group}a rollout of {sizes} sequences: {error}") from None
