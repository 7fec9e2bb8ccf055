"""What the checks look at: a rollout of the user's agent in the user's environment, after one update."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.collection import collect
from ppax.envs import Env, HostEnv
from ppax.envs.vector import VectorEnv
from ppax.host import Gathered, Rollouts
from ppax.learning.diagnostics import Update
from ppax.learning.kl_control import KLControl
from ppax.minibatches import Shuffle
from ppax.optimizers import SGD
from ppax.ppo import PPO
from ppax.training import check_sizes, start
from ppax.types import ActorState, ConfigError, Key, LearnerState, PyTree, Rollout, Transition

ROWS = 1024  # of a rollout are enough to see what is wrong
RATE = 1e6  # so large that the smallest gradient shows in float32 weights
ENDS = 4  # episodes that should end in a rollout
# Programs that run once or twice: what the compiler takes counts, not what they take
CPU_OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
STEPS, SECONDS = 5000, 10.0  # how long to wait for them


class Again(NamedTuple):
    """Every stored step, taken again one after the other, [T, B, ...]."""

    carry: PyTree  # before the step
    log_prob: Array
    value: Array
    entropy: Array
    env_action: PyTree


class CheckContext(NamedTuple):
    """One rollout, and all that led to it."""

    agent: PPO
    env: Any  # VectorEnv, or HostEnv, of which some checks cannot be made
    learner: LearnerState
    actor: ActorState  # where the rollout began
    key: Key  # of the rollout
    rollout: Rollout
    again: Callable[..., Again]  # (learner, carry, steps), from memory `carry` on
    update: Callable[..., Update]  # (learner, rollout, key)
    probe: Callable[..., Update]  # the same: one plain gradient step on all rows, at rate RATE


def make(agent: PPO, env: Env, learner: LearnerState, actor: ActorState, key: Key, rollout: Rollout) -> CheckContext:
    """A world and its programs; they compile when they are called."""
    update = quick(lambda learner, rollout, key: agent.update(learner, rollout, key))
    return CheckContext(agent, env, learner, actor, key, rollout, _again(agent), update, _probe(agent, env))


def build(agent: PPO, env: Env, num_steps: int, key: Key) -> CheckContext:
    """One update, then rollouts until some episodes have ended in one, or that takes too long."""
    look_key, update_key = jax.random.split(key)

    def learn(world: CheckContext) -> CheckContext:  # weights and statistics that are not those they began with
        return world._replace(learner=world.update(world.learner, world.rollout, update_key).learner)

    return look(agent, env, num_steps, look_key, learn)


def look(
    agent: PPO, env: Env, num_steps: int, key: Key, change: Callable[[CheckContext], CheckContext] = lambda world: world
) -> CheckContext:
    """Rollouts until some episodes have ended in one, or that takes too long; `change` is made after the first."""
    start_key, first_key, later_key = jax.random.split(key, 3)
    state = quick(lambda agent, env, key: start(agent, env, num_steps, key))(agent, env, start_key)
    gather = Rollouts(agent, env, state) if isinstance(env, HostEnv) else _compiled(agent, env, num_steps)
    begun, (actor, rollout, _) = gather(state.learner, state.actor, jax.random.clone(first_key))
    world = change(make(agent, env, state.learner, begun, first_key, rollout))
    deadline = time.monotonic() + SECONDS
    for i in range(1 + STEPS // num_steps):
        step_key = jax.random.fold_in(later_key, i)
        begun, (actor, rollout, _) = gather(world.learner, actor, jax.random.clone(step_key))
        world = world._replace(actor=begun, key=step_key, rollout=rollout)
        if int(rollout.steps.ended[:-2].sum()) >= ENDS or time.monotonic() > deadline:
            break
    return world


def _compiled(agent: PPO, env: VectorEnv, num_steps: int) -> Callable[..., Gathered]:
    """Collects rollouts of native environments."""
    program = quick(lambda *now: collect(now[0], now[1], now[2], now[3], num_steps, now[4]))
    return lambda learner, actor, key: Gathered(actor, program(agent, env, learner, actor, key))


def _again(agent: PPO) -> Callable[..., Again]:
    def play(learner: LearnerState, carry: PyTree, steps: Transition) -> Again:
        def step(carry: PyTree, now: Any) -> tuple[PyTree, Again]:
            policy = agent.policy(learner, carry, now.obs, now.first, now.action_mask)
            distribution = policy.distribution
            said = distribution.log_prob(now.action), policy.value, distribution.entropy()
            return policy.carry, Again(carry, *said, distribution.env_action(now.action))

        return jax.lax.scan(step, carry, dataclasses.replace(steps, carry=()))[1]

    return quick(play)


def _probe(agent: PPO, env: Env) -> Callable[..., Update]:
    plain: Any = {"max_grad_norm": None, "num_epochs": 1, "kl": KLControl(), "minibatch": Shuffle(1)}
    probe = dataclasses.replace(agent, optimizer=SGD(), learning_rate=RATE, **plain)

    def update(learner: LearnerState, rollout: Rollout, key: Key) -> Update:
        fresh = probe.init(env.observation_space, jax.random.key(0))
        return probe.update(learner._replace(opt_state=fresh.opt_state, control=fresh.control), rollout, key)

    return quick(update)


def taken_again(world: CheckContext) -> Again:
    """All of the rollout."""
    return world.again(world.learner, world.actor.carry, world.rollout.steps)


def gradient(world: CheckContext, rollout: Rollout, key: Key) -> dict[str, np.ndarray]:
    """Of every leaf of the parameters, by its path, on all rows of `rollout`."""
    after = world.probe(world.learner, rollout, key).learner.params
    pairs = zip(numbers(world.learner.params), numbers(after), strict=True)
    return {path: (a.astype(np.float64) - b) / RATE for (path, a), (_, b) in pairs}


def fewest(agent: PPO, env: Env, num_steps: int) -> Env:
    """As few of the environments as give some hundred rows and sizes that divide; on the host others of the kind."""
    check_sizes(agent, env, num_steps)
    enough = -(-ROWS // (num_steps * (env.num_streams // env.num_envs)))
    for num_envs in range(min(enough, env.num_envs), env.num_envs):
        fewer = dataclasses.replace(env, num_envs=num_envs)
        try:
            check_sizes(agent, fewer, num_steps)
        except ConfigError:
            continue
        if env.num_envs % num_envs == 0:
            return env.again(num_envs) if isinstance(env, HostEnv) else fewer
    return env.again(env.num_envs) if isinstance(env, HostEnv) else env


def quick(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled fast."""
    return jax.jit(function, compiler_options=CPU_OPTIONS if jax.default_backend() == "cpu" else None)


def numbers(tree: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """(path, values) of every leaf, keys as their words."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        yield jax.tree_util.keystr(path), np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def unlike(one: PyTree, other: PyTree) -> list[str]:
    """Paths of the leaves that are not the same, bit for bit."""
    pairs = zip(numbers(one), numbers(other), strict=True)
    return [path for (path, a), (_, b) in pairs if a.shape != b.shape or a.tobytes() != b.tobytes()]


def distance(one: PyTree, other: PyTree, valid: Any) -> float:
    """The largest |a - b| / (1 + |b|) of rows [N, ...] that are valid; infinite where one is not finite."""
    rows, worst = np.asarray(valid), 0.0
    for (_, a), (_, b) in zip(numbers(one), numbers(other), strict=True):
        a, b = a[rows].astype(np.float64), b[rows].astype(np.float64)
        if a.size:
            with np.errstate(invalid="ignore"):
                worst = max(worst, float(np.nan_to_num(np.abs(a - b) / (1.0 + np.abs(b)), nan=np.inf).max()))
    return worst
