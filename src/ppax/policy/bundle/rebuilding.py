"""Agent of a bundle, built again from the configuration of its run, as far as acting needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from ppax import config
from ppax.config.user_parts import AGENT_PREFIX
from ppax.core.options import Config, flatten, unflatten
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError
from ppax.policy.spec import PolicySpec

if TYPE_CHECKING:
    from ppax.policy.policy import Policy

READ = ("network", "critic", "normalize_obs", "normalization", "compute_dtype")  # fields of PPO that acting reads


def rebuilt(spec: PolicySpec) -> Agent:
    """Return the agent that the configuration in `spec` describes; ConfigError if acting needs a user's own parts."""
    return config.build_agent(_to_act(spec.config), spec)


def is_rebuilt(policy: Policy) -> bool:
    """Return whether the configuration in a policy's specification is enough to build its agent again."""
    try:
        agents = [one.learners(policy.spec.num_agents) for one in (rebuilt(policy.spec), policy.agent)]
    except ConfigError:
        return False
    mine, theirs = ([[getattr(agent, name) for name in READ] for agent, _ in one] for one in agents)
    structures: list[Any] = [jax.tree.structure(fields) for fields in (mine, theirs)]
    return bool(structures[0] == structures[1]) and _choices(mine) == _choices(theirs)


def _to_act(run_config: Config) -> Config:
    """Return the entries of a run's configuration that acting reads, without those of parts that only learning uses."""
    kept = {}
    for path, value in flatten(run_config):
        agent = AGENT_PREFIX.match(path)  # a group may be named "agent", too
        name, among = (path[agent.end() :], READ) if agent else (path, ("agents", "groups"))
        if name.partition(".")[0] in among:
            kept[path] = value
    return unflatten(kept)


def _choices(agents: Any) -> Any:
    """Return, for each agent, a list of the strings and booleans among its field values, such as `compute_dtype`.

    Two agents are compared by these lists and by their pytree structures, which do not show the values of leaves.
    """
    return [[x for x in fields if isinstance(x, bool | str)] for fields in agents]
