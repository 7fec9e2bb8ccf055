"""Parallel environments of PettingZoo by their modules: `ppax.make("pettingzoo/sisl/pursuit_v5")`.

The particle environments have moved to a package of their own, mpe2: "pettingzoo/mpe/simple_spread_v3". How agents
become streams: team.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from functools import partial
from typing import Any

from ppax.envs.hosting.host_env import HostEnv, host
from ppax.envs.suites.common import known, library

FAMILIES = {"butterfly": "pettingzoo.butterfly", "mpe": "mpe2", "sisl": "pettingzoo.sisl"}
EXTRA = "pettingzoo"


def ids() -> list[str]:
    """Those that can be stepped in parallel; nothing of them is imported."""
    library("pettingzoo", EXTRA)
    found = []
    for family, name in FAMILIES.items():
        spec = importlib.util.find_spec(name)
        places = [] if spec is None else list(spec.submodule_search_locations or [])
        found += [f"{family}/{m.name}" for m in pkgutil.iter_modules(places) if re.search(r"_v\d+$", m.name)]
    return found


def load(
    env_id: str,
    num_envs: int,
    vectorization: str = "sync",
    action_repeat: int = 1,
    agent_ids: bool = False,
    central_critic: bool = False,
    **options: Any,
) -> HostEnv:
    """`num_envs` environments `env_id`, whose agents must be alike. `options` go to the environment.

    Raises ConfigError for an unknown id and for agents that are not alike, ImportError, naming the extra to install,
    where a library is missing.
    """
    family, _, name = known("pettingzoo", env_id, ids()).partition("/")
    module = library(f"{FAMILIES[family]}.{name}", EXTRA)
    make: Any = partial(module.parallel_env, **options)
    seen = {"agent_ids": agent_ids, "central_critic": central_critic}
    return host(make, num_envs, f"pettingzoo/{env_id}", vectorization, action_repeat=action_repeat, **seen)
