"""Checks of the arguments of `fit`, `start` and `sweep` before tracing, with a message for each common mistake."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import warnings
from types import FunctionType
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium.vector import VectorEnv as GymVectorEnv

from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.metrics import require_distinct_names
from ppax.agents.self_play import SelfPlay
from ppax.arrays.sequences import nearest_divisors
from ppax.core.options import require_whole
from ppax.core.parts import name_of
from ppax.core.protocols import Agent
from ppax.core.types import ActorState, ConfigError, LearnerState, TrainState
from ppax.devices import sharding
from ppax.envs import Env, HostEnv
from ppax.envs.hosting.arrays import leaves_of
from ppax.envs.suites.registry import require_adapted
from ppax.envs.vector import VectorEnv
from ppax.networks.composed import Composed, require_made_for
from ppax.networks.heads import off_scale
from ppax.networks.modules import ModuleNetwork
from ppax.ppo.advantages import GAE
from ppax.ppo.extension import Chain, Extension
from ppax.ppo.forward import remembered
from ppax.ppo.gradients import Plain
from ppax.ppo.losses import ClippedSurrogate
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.optimizers import Adam
from ppax.ppo.ppo import PPO
from ppax.ppo.schedules import Constant

AGENTS: tuple[type[Agent], ...] = (PPO, Independent, Groups, SelfPlay)
PARTS = {
    "advantage": (("__call__",), "ppax.advantages.GAE()"),
    "loss": (("__call__",), "ppax.losses.ClippedSurrogate()"),
    "critic": (("num_values", "init", "value", "error", "update", "metrics"), "ppax.critics.Regression()"),
    "minibatch": (("__call__", "size"), "ppax.minibatches.Shuffle()"),
    "recompute": (
        ("whole_streams", "check", "inputs", "before_epoch", "before_step"),
        "ppax.recompute.Minibatch(), Epoch() or Never()",
    ),
    "gradient": (("__call__",), "ppax.gradients.Plain()"),
    "optimizer": (("__call__", "elementwise"), "ppax.optimizers.Adam()"),
    "schedule": (("__call__",), "ppax.schedules.Constant()"),
}  # parts of PPO except its network: members that it needs, and the default that an error message suggests
NETWORK = ("init", "initial_carry", "encode", "remember", "decide")  # of a network


CALLED = {
    "advantage": GAE,
    "loss": ClippedSurrogate,
    "minibatch": Shuffle,
    "gradient": Plain,
    "optimizer": Adam,
    "schedule": Constant,
}  # kinds of parts that PPO calls, and a part that shows with which arguments


def wrong_call(kind: str, found: type) -> str:
    """Return what is wrong with the parameters of `__call__` in `found`, a class of parts of the kind `kind`; or ""."""
    if kind not in CALLED:
        return ""
    wanted = list(inspect.signature(CALLED[kind].__call__).parameters)
    try:
        inspect.signature(found.__call__).bind(*wanted)
    except TypeError:
        own = ", ".join(inspect.signature(found.__call__).parameters)
        return f"{found.__name__}.__call__ takes ({own}), and is called with ({', '.join(wanted)})"
    except ValueError:  # without a signature, as functions of C
        return ""
    return ""


def require_arguments(agent: Agent, env: Env) -> None:
    """Raise ConfigError, with the remedy, unless `agent` and `env` are valid and the networks fit the spaces."""
    require_env(env)
    require_agent(agent)
    groups = [name for name, _ in agent.requires.sizes]
    for place, (learner, _) in enumerate(agent.learners(env.num_streams)):
        name = f"agents[{groups[place]!r}]" if groups else "agent"
        require_ppo(learner, name)
        spaces = env.groups.get(groups[place]) if groups else env
        if spaces is not None and bool(groups) == bool(env.sizes):
            require_made_for(learner.network, spaces, f"{name}.network", env.name)


def require_consistent(agent: Agent) -> None:
    """Raise ConfigError where options of `agent` contradict each other; none of its numbers may be a tracer.

    Numbers in JAX's or NumPy's arrays are checked as Python's are.
    """
    jax.tree.map(lambda x: x.item() if hasattr(x, "item") and np.ndim(x) == 0 else x, agent).check()


def require_fit(agent: Agent, env: Env) -> None:
    """Raise ConfigError unless `env` has the agents, groups and number of environments that `agent` requires."""
    where, kind, (num_agents, sizes, num_envs) = env.name or "the environment", type(agent).__name__, agent.requires
    if bool(sizes) != bool(env.sizes):
        listed = ", ".join(f"{group} ({size})" for group, size in env.sizes)
        raise ConfigError(
            f"{where} has groups of agents, {listed}: write ppax.Groups({{...}}, env.sizes)"
            if env.sizes
            else f"{kind}: {where} has no groups; write ppax.envs.grouped(env, {{name: [0, ...], ...}}) around it"
        )
    if sizes != tuple(env.sizes):
        raise ConfigError(f"Groups has sizes {sizes}, {where} has {tuple(env.sizes)}; write Groups(agents, env.sizes)")
    require_distinct_names(sizes, env.agent_names)
    if num_agents not in (None, env.num_agents):
        raise ConfigError(
            f"{kind} has {num_agents} players, {where} has {env.num_agents} agents; "
            f"write Independent(agent, {env.num_agents})"
        )
    if num_envs not in (None, env.num_envs):
        raise ConfigError(
            f"{kind}.num_envs = {num_envs}: {where} has num_envs = {env.num_envs}; "
            f"write {kind}(groups, pool, env.num_envs)"
        )


def require_players(agent: Agent, env: Env) -> None:
    """Raise ConfigError unless the compiled environment `env` has the agents and groups that `agent` requires.

    Its number of environments does not matter: evaluations play in as many copies as they need.
    """
    require_fit(agent, dataclasses.replace(env, num_envs=agent.requires.num_envs or env.num_envs))


def require_limits(env: Env, num_steps: int) -> None:
    """Raise ConfigError if `env.num_envs` or the rollout length `num_steps` is above a limit that `env` declares.

    The limits are the attributes `max_num_envs` and `max_horizon` of `env`; None is no limit.
    """
    sizes = (("num_envs", env.num_envs, "max_num_envs"), ("num_steps", num_steps, "max_horizon"))
    for name, size, attribute in sizes:
        limit = getattr(env, attribute)
        if limit is not None and size > limit:
            raise ConfigError(
                f"{name} = {size}: {env.name or 'the environment'} takes at most {limit}, as its {attribute} says; "
                f"nearest valid value: {limit}"
            )


def require_overlap(agent: Agent, env: Env, overlap: int, iterations_per_env_reset: int | None) -> None:
    """Raise ConfigError where `overlap` = 1, which collects the next rollout during an update, cannot work.

    `overlap` = 1 needs an environment on the host. It excludes self-play, forced resets, and extensions that need
    rollouts of the latest policy, because the policy that acts is then one update old. With `overlap` = 0 nothing is
    checked.
    """
    if not overlap:
        return
    if not isinstance(env, HostEnv):
        raise ConfigError(f"overlap = {overlap}: {env.name} is stepped inside the compiled program; leave it out")
    other = "self_play" if agent.pool is not None else "iterations_per_env_reset"
    if agent.pool is not None or (iterations_per_env_reset or 0) > 0:
        raise ConfigError(
            f"overlap = {overlap}: {other} changes environments or players after an update, when the next rollout is "
            f"already collected; leave out overlap or {other}"
        )
    for learner, _ in agent.learners(env.num_streams):
        # between the policy that acted and the one that learns lies the whole update before: KL controls would measure
        # and limit that one, and an early stop would skip updates before their first gradient step
        for name, extension in Chain(learner.extensions).by_name.items():
            if extension.needs_latest_policy:
                option = f"extensions.{name}.{extension.needs_latest_policy}"
                raise ConfigError(
                    f"overlap = {overlap}: {option} compares with the policy that acted, which is one update old; "
                    f"leave out overlap or {option}"
                )


def warn_of_single_rows(agent: Agent, env: Env, num_steps: int) -> None:
    """Warn if minibatches have one row (one step of one agent): training runs, but its gradients are noise."""
    for learner, streams in agent.learners(env.num_streams):
        length = learner.sequence_length(num_steps)
        if num_steps % length == 0 and length * learner.minibatch_size(num_steps, streams) == 1:
            warnings.warn(
                f"num_envs = {env.num_envs}, num_steps = {num_steps}: each minibatch has one row, whose advantage "
                "cannot be standardised; use at least num_envs = 8 and num_steps = 128",
                stacklevel=5,
            )


def warn_of_units(agent: Agent, env: Env) -> None:
    """Warn if the initial policy, a normal distribution with mean 0 and std 1, hardly reaches the actions' bounds."""
    for learner, _ in agent.learners(env.num_streams):
        bounds = off_scale(learner.network.head) if isinstance(learner.network, Composed | ModuleNetwork) else ""
        if bounds:
            warnings.warn(
                f"{env.name}: actions in {bounds}, where the normal distribution, which begins around 0 with standard "
                'deviation 1 in the units of the environment, hardly moves; write distribution = "squashed", which '
                "maps its range to that of the actions, or let the environment take actions in [-1, 1], as "
                "gymnasium.wrappers.RescaleAction does",
                stacklevel=5,
            )


def is_env(env: Any) -> bool:
    """Return whether `env` is an environment of ppax: a VectorEnv, which is compiled, or a HostEnv."""
    return isinstance(env, VectorEnv | HostEnv)


def require_env(env: Any) -> None:
    """Raise ConfigError unless `env` is a VectorEnv or a HostEnv; the message shows the call that makes one.

    It is also raised if JAX finds no device.
    """
    sharding.require_backend()
    require_adapted(env.env if isinstance(env, VectorEnv) else env)
    if is_env(env):
        _require_32_bits(env)
        return
    if isinstance(env, str):
        remedy = f"is the name of an environment: write ppax.make({env!r})"
    elif isinstance(env, gymnasium.Env):
        name = f'ppax.make("gymnasium/{env.spec.id}"), or ' if env.spec else ""
        remedy = f"is one gymnasium.Env: write {name}ppax.envs.host(f, num_envs=8), where f() makes one"
    elif isinstance(env, type) and issubclass(env, gymnasium.Env):
        raise ConfigError(f"env: {env.__name__} is a class of gymnasium.Env: write ppax.envs.host({env.__name__}, 8)")
    elif isinstance(env, type):
        name = env.__name__
        raise ConfigError(
            f"env: {name} is a class: write ppax.envs.VectorEnv({name}(), num_envs=64) if it is written in JAX, "
            f"ppax.envs.host({name}, 8) if not"
        )
    elif isinstance(env, GymVectorEnv):
        remedy = "is a vector environment of Gymnasium: write ppax.envs.host(env)"
    elif callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None)):
        remedy = "is one environment: write ppax.envs.VectorEnv(env, num_envs=64)"
    else:
        remedy = "is no environment: write ppax.make(NAME), ppax.envs.VectorEnv(env, num_envs) or ppax.envs.host(f)"
    raise ConfigError(f"env: a {type(env).__name__} {remedy}")


def _require_32_bits(env: Env) -> None:
    """Raise ConfigError if a compiled environment's observations have whole numbers beyond 32 bits.

    JAX would wrap such numbers silently. Environments on the host may have them.
    """
    if isinstance(env, HostEnv) or jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return
    if not isinstance(env.observation_space, gymnasium.Space):  # refused by the checks of the environment
        return
    wide = next((leaf for leaf in leaves_of(env.observation_space) if leaf.wide), None)
    if wide is not None:
        where = "".join(f"[{step!r}]" for step in wide.path)
        raise ConfigError(
            f"{env.name or 'the environment'}: the bounds of observation_space{where}, {wide.space_dtype}, exceed 32 "
            "bits, which compiled environments have; nearest valid dtype: float32, or int32 with bounds that hold"
        )


def require_agent(agent: Any, name: str = "agent") -> None:
    """Raise ConfigError unless `agent` is an agent of ppax; `name` is what the message calls it."""
    if not isinstance(agent, AGENTS):
        kind = agent.__name__ if isinstance(agent, type) else f"a {type(agent).__name__}"
        raise ConfigError(f"{name}: {kind} is no agent: write ppax.PPO(ppax.networks.mlp(env))")
    if isinstance(agent, SelfPlay):
        require_agent(agent.agent, f"{name}.agent")
    if isinstance(agent, Groups):
        _require_groups(agent, name)
        for group, one in agent.agents.items():
            require_agent(one, f"agents[{group!r}]")


def _require_groups(agent: Groups, name: str) -> None:
    """Raise ConfigError unless `agent`, which the message calls `name`, has one agent for each group of its sizes."""
    groups = [group for group, _ in agent.sizes]
    unknown = next((group for group in agent.agents if group not in groups), None)
    missing = next((group for group in groups if group not in agent.agents), None)
    if unknown is not None:
        free = [group for group in groups if group not in agent.agents] or groups
        nearest = difflib.get_close_matches(str(unknown), free, n=1, cutoff=0.0)
        raise ConfigError(
            f"{name}: has an agent for {unknown!r}, but the groups are {', '.join(groups)}; nearest: {nearest[0]!r}"
        )
    if missing is not None:
        raise ConfigError(f"{name}: has no agent for the group {missing!r}: must have one for each of {groups}")
    for group, size in agent.sizes:
        one = agent.agents[group]
        if isinstance(one, Independent) and one.num_agents != size:
            raise ConfigError(
                f"agents[{group!r}]: Independent has {one.num_agents} players, the group has {size}; write "
                f"Independent(agent, {size})"
            )


def require_key(key: Any, axis: bool = False) -> None:
    """Raise ConfigError unless `key` is a random key of `jax.random.key`; with `axis`, an array [S] of such keys."""
    typed = hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if typed and key.ndim == axis:
        return
    needed = "keys [S], one for each run: write jax.random.split(jax.random.key(0), 4)"
    name, needed = ("keys", needed) if axis else ("key", "one random key: write jax.random.key(0)")
    given = f"{key.dtype}{list(key.shape)}" if hasattr(key, "dtype") else "an int" if isinstance(key, int) else ""
    given = given or f"a {type(key).__name__}"
    old = "" if typed or not hasattr(key, "dtype") else ", in place of jax.random.PRNGKey(0)"
    raise ConfigError(f"{name}: {given}: must be {needed}{old}")


def require_learner(agent: Agent, learner: Any) -> None:
    """Raise ConfigError unless `learner` can be a learner of `agent`, as `state.learner` is."""
    if isinstance(learner, TrainState):
        raise ConfigError("learner: a TrainState: must be its learner; write state.learner")
    if isinstance(agent, PPO | Independent) and not isinstance(learner, LearnerState):
        raise ConfigError(f"learner: a {type(learner).__name__}: must be a LearnerState; write state.learner")


def require_rollout(agent: Agent, env: Env, actor: ActorState, num_steps: int) -> None:
    """Raise ConfigError unless rollouts of `num_steps` steps can be collected from the state `actor`."""
    require_whole(num_steps, "num_steps")
    if len(actor.first) != env.num_streams:
        raise ConfigError(
            f"actor: has {len(actor.first)} streams, num_envs = {env.num_envs} of env are {env.num_streams}: "
            "write the actor of a state of ppax.start(agent, env, num_steps, key)"
        )
    length = agent.sequence_length(num_steps)
    if num_steps % length and jax.tree.leaves(remembered(actor.carry)):
        divisors = nearest_divisors(num_steps, length)
        raise ConfigError(f"seq_len = {length} does not divide num_steps = {num_steps}; {divisors}")


def require_ppo(agent: Any, name: str) -> None:
    """Raise ConfigError unless the fields of the PPO `agent` are parts: objects with the members that PPO needs.

    `name` is what the message calls the agent.
    """
    require_agent(agent, name)
    _require_tree(agent, name)
    if lacking := _missing(agent.network, NETWORK):
        if len(lacking) < len(NETWORK):
            raise ConfigError(f"{name}.network: {type(agent.network).__name__} lacks {', '.join(lacking)}")
        kind = f"a {type(agent.network).__name__} is no network"
        raise ConfigError(f"{name}.network: {kind}: write ppax.PPO(ppax.networks.mlp(env))")
    if isinstance(agent.optimizer, optax.GradientTransformation):
        raise ConfigError(
            f"{name}.optimizer: an optax transformation has a learning rate of its own, which no schedule can change: "
            "write optimizer=ppax.optimizers.Adam(), learning_rate=1e-3, or for another optimiser of optax "
            "optimizer=ppax.optimizers.Optax(optax.lion, b1=0.9)"
        )
    if isinstance(agent.optimizer, FunctionType):
        raise ConfigError(f"{name}.optimizer: a function: write ppax.optimizers.Optax({agent.optimizer.__name__})")
    for field, (members, default) in PARTS.items():
        value = getattr(agent, field)
        if lacking := _missing(value, members):
            if len(lacking) < len(members):
                raise ConfigError(f"{name}.{field}: {type(value).__name__} lacks {', '.join(lacking)}")
            raise ConfigError(f"{name}.{field}: {_short(value)} is no part: write {field}={default}")
        if wrong := wrong_call(field, type(value)):
            raise ConfigError(f"{name}.{field}: must be a part for {field}; {wrong}")
        _require_tree(value, f"{name}.{field}")
    if not isinstance(agent.extensions, tuple | list):
        raise ConfigError(f"{name}.extensions: must be a tuple, extensions=({_short(agent.extensions)},)")
    for extension in agent.extensions:
        if not isinstance(extension, Extension):
            raise ConfigError(
                f"{name}.extensions: {_short(extension)} is no extension: write a class, class {_named(extension)}"
                "(ppax.Extension), with the decorator @ppax.part, and pass an object of it"
            )
        _require_tree(extension, f"{name}.extensions.{name_of(extension)}")
    Chain(agent.extensions)
    require_static(agent, name)


def require_static(tree: Any, name: str) -> None:
    """Raise ConfigError if a static field of the part `tree`, or of a part inside it, is an array.

    A part is a swappable component of the agent, a frozen dataclass. Its static fields are compiled into the program,
    and cannot be swept. `name` is the path of the part in the message.
    """
    for field in dataclasses.fields(tree):
        value, path = getattr(tree, field.name), f"{name}.{field.name}"
        if field.metadata.get("static") and isinstance(value, jax.Array | np.ndarray):
            raise ConfigError(
                f"{path}: an array, but this field is static (compiled into the program) and cannot be swept. "
                f"Give a plain {field.name}, and call ppax.fit or ppax.sweep once for each value"
            )
        for one in value if isinstance(value, tuple) and "slot_chain" in field.metadata else (value,):
            if dataclasses.is_dataclass(one) and not isinstance(one, type):
                require_static(one, path if one is value else f"{path}.{name_of(one)}")


def _require_tree(value: Any, name: str) -> None:
    """Raise ConfigError if `value` is not a JAX pytree, such as an instance of a class without the decorator @part.

    JAX would take such an object for a leaf, and cannot trace it. `name` is the path of `value` in the message.
    """
    if jax.tree_util.all_leaves([value]):
        kind = type(value).__name__
        raise ConfigError(f"{name}: JAX cannot trace a {kind}: write its class with the decorator @ppax.part")


def _missing(value: Any, members: tuple[str, ...]) -> list[str]:
    """Return the names in `members` that the object `value` lacks: all of them if it is a class."""
    return [name for name in members if isinstance(value, type) or not hasattr(value, name)]


def _named(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
