"""Context of the checks: a rollout of the user's agent in the user's environment, and programs that process it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ppax.agents.policies import single_policies
from ppax.core.protocols import Agent
from ppax.core.types import ActorState, ConfigError, Key, LearnerState, PyTree, Rollout, Transition
from ppax.devices.platforms import rules
from ppax.envs import Env
from ppax.ppo.diagnostics import Update
from ppax.ppo.forward import remembered
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.optimizers import Optax
from ppax.training.backends import backend_of
from ppax.training.loop import check_sizes, start

ROWS = 1024  # rows of a rollout that suffice for the checks
RATE = 1e6  # learning rate of the probe: the smallest gradient changes float32 weights
ENDS = 4  # episodes that should end in the rollout
STEPS, SECONDS = 5000, 10.0  # limits on collecting rollouts until ENDS episodes have ended


class Replay(NamedTuple):
    """Outputs of the policy, recomputed step by step on a stored rollout: [T, B, ...], T steps of B streams.

    A stream is one agent in one environment.
    """

    carry: PyTree  # before the step
    log_prob: Array
    value: Array
    entropy: Array
    env_action: PyTree


class CheckContext(NamedTuple):
    """Data that the checks examine: a rollout, the states from which it was collected, and compiled functions for it.

    `replay` recomputes the policy's outputs, `update` is the agent's update, and `probe` one plain SGD step on all
    rows.
    """

    agent: Any  # one PPO, or an agent of several (agents/policies.py)
    env: Any  # VectorEnv or HostEnv (some checks need a VectorEnv); for one policy of several, a PolicyEnv
    learner: LearnerState
    actor: ActorState  # at the start of the rollout
    key: Key  # with which the rollout was collected
    rollout: Rollout
    replay: Callable[..., Replay]  # (learner, carry, steps), starting from the memory `carry`
    update: Callable[..., Update]  # (learner, rollout, key)
    probe: Callable[..., Update]  # (learner, rollout, key): one SGD step on all rows, learning rate RATE


def make_context(
    agent: Any, env: Any, learner: LearnerState, actor: ActorState, key: Key, rollout: Rollout
) -> CheckContext:
    """Return a context for checks of `rollout`, collected by `agent` in `env` from `actor` with `key`.

    Its functions compile when they are called first.
    """
    update = fast_compiled(lambda learner, rollout, key: agent.update(learner, rollout, key))
    return CheckContext(
        agent, env, learner, actor, key, rollout, _replay_program(agent), update, _probe_program(agent, env)
    )


def contexts_of_policies(whole: CheckContext, num_envs: int) -> Iterator[tuple[str, CheckContext]]:
    """Yield the name and the context of each policy of an agent that has several, with its share of `whole`'s rollout.

    In each context, `env` has spaces and sizes of `num_envs` environments as this policy sees them.
    """
    members = single_policies(whole.agent, whole.env, whole.learner, whole.actor.carry, whole.rollout, num_envs)
    for member in members:
        start = whole.actor._replace(carry=member.carry)
        yield member.name, make_context(member.agent, member.env, member.learner, start, whole.key, member.rollout)


def context_after_update(agent: Agent, env: Env, num_steps: int, key: Key) -> CheckContext:
    """Return a context whose rollout was collected after one update, so that weights and statistics are not initial."""
    rollout_key, update_key = jax.random.split(key)

    def learn(context: CheckContext) -> CheckContext:
        return context._replace(learner=context.update(context.learner, context.rollout, update_key).learner)

    return context_from_rollouts(agent, env, num_steps, rollout_key, learn)


def context_from_rollouts(
    agent: Agent,
    env: Env,
    num_steps: int,
    key: Key,
    change: Callable[[CheckContext], CheckContext] = lambda context: context,
) -> CheckContext:
    """Return a context with a rollout in which ENDS episodes have ended, or with the last rollout if there is none.

    Rollouts of `num_steps` steps are collected one after another. The first is never returned: after it, `change` is
    applied to the context, for example to update the learner. Of the later ones, the first in which at least ENDS
    episodes have ended is returned, or the one after which about STEPS steps or SECONDS seconds have passed.
    """
    start_key, first_key, later_key = jax.random.split(key, 3)
    state = fast_compiled(lambda agent, env, key: start(agent, env, num_steps, key))(agent, env, start_key)
    gather = backend_of(env).rollouts(agent, state)
    initial_actor, (actor, rollout, _) = gather(state.learner, state.actor, jax.random.clone(first_key))
    context = change(make_context(agent, env, state.learner, initial_actor, first_key, rollout))
    deadline = time.monotonic() + SECONDS
    for i in range(1 + STEPS // num_steps):
        step_key = jax.random.fold_in(later_key, i)
        initial_actor, (actor, rollout, _) = gather(context.learner, actor, jax.random.clone(step_key))
        context = context._replace(actor=initial_actor, key=step_key, rollout=rollout)
        if int(rollout.steps.ended[:-2].sum()) >= ENDS or time.monotonic() > deadline:
            break
    return context


def _replay_program(agent: Any) -> Callable[..., Replay]:
    def play(learner: LearnerState, carry: PyTree, steps: Transition) -> Replay:
        def step(carry: PyTree, stored: Any) -> tuple[PyTree, Replay]:
            policy = agent.policy(learner, carry, stored.obs, stored.first, stored.action_mask)
            distribution = policy.distribution
            return policy.carry, Replay(
                carry=remembered(carry),
                log_prob=distribution.log_prob(stored.action),
                value=policy.value,
                entropy=distribution.entropy(),
                env_action=distribution.env_action(stored.action),
            )

        return jax.lax.scan(step, carry, dataclasses.replace(steps, carry=()))[1]

    return fast_compiled(play)


def _probe_program(agent: Any, env: Any) -> Callable[..., Update]:
    plain: Any = {"max_grad_norm": None, "num_epochs": 1, "minibatch": Shuffle(1)}

    def update(learner: LearnerState, rollout: Rollout, key: Key) -> Update:
        # extensions stay: their terms are part of the loss
        probe = dataclasses.replace(agent, optimizer=Optax(optax.sgd), learning_rate=RATE, **plain)
        fresh = probe.init(env.observation_space, jax.random.key(0))
        return probe.update(learner._replace(opt_state=fresh.opt_state), rollout, key)

    return fast_compiled(update)


def replayed_rollout(context: CheckContext) -> Replay:
    """Return the outputs of the policy on the context's whole rollout, recomputed step by step."""
    return context.replay(context.learner, context.actor.carry, context.rollout.steps)


def gradient(context: CheckContext, rollout: Rollout, key: Key) -> dict[str, np.ndarray]:
    """Return the gradient of the agent's loss on all rows of `rollout`, float64, by the path of the parameter."""
    after = context.probe(context.learner, rollout, key).learner.params
    pairs = zip(labelled_leaves(context.learner.params), labelled_leaves(after), strict=True)
    return {path: (a.astype(np.float64) - b) / RATE for (path, a), (_, b) in pairs}


def fewest_envs(agent: Agent, env: Env, num_steps: int) -> int:
    """Return the smallest number of environments with which a rollout has at least ROWS steps and fits the minibatches.

    Only divisors of the number of environments in `env` are considered. If no smaller divisor will do, the result is
    the number of environments in `env`.
    """
    check_sizes(agent, env, num_steps)
    enough = -(-ROWS // (num_steps * env.num_agents))
    for num_envs in range(min(enough, env.num_envs), env.num_envs):
        try:
            check_sizes(agent, dataclasses.replace(env, num_envs=num_envs), num_steps)
        except ConfigError:
            continue
        if env.num_envs % num_envs == 0:
            return num_envs
    return env.num_envs


def fast_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` jitted with few optimisations by XLA, so that compiling it and running it once takes less time.

    It compiles at the first call.
    """
    return jax.jit(function, compiler_options=rules().run_once_options)


def labelled_leaves(tree: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the path and the values of every leaf of `tree`; PRNG keys are given as their key data (integers)."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        yield jax.tree_util.keystr(path), np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def differing_leaves(one: PyTree, other: PyTree) -> list[str]:
    """Return the paths of the leaves that are not bit-identical in two trees of equal structure."""
    pairs = zip(labelled_leaves(one), labelled_leaves(other), strict=True)
    return [path for (path, a), (_, b) in pairs if a.shape != b.shape or a.tobytes() != b.tobytes()]


def max_difference(one: PyTree, other: PyTree, valid: Any) -> float:
    """Return the largest |a - b| / (1 + |b|) over `valid` rows of two trees; infinite where a or b is not finite.

    Leaves have the axes of `valid` in front. The result is 0 if no row is valid.
    """
    rows, worst = np.asarray(valid), 0.0
    for (_, a), (_, b) in zip(labelled_leaves(one), labelled_leaves(other), strict=True):
        a, b = a[rows].astype(np.float64), b[rows].astype(np.float64)
        if a.size:
            with np.errstate(invalid="ignore"):
                worst = max(worst, float(np.nan_to_num(np.abs(a - b) / (1.0 + np.abs(b)), nan=np.inf).max()))
    return worst
