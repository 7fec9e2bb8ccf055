"""Adapter for PettingZoo's environments, parallel and turn-based, by module: `ppax.make("pettingzoo/sisl/pursuit_v5")`.

The particle environments are in a separate package, mpe2: "pettingzoo/mpe/simple_spread_v3". Agents become streams in
hosting/team.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from functools import partial
from typing import Any

from ppax.envs.hosting.host_env import HostEnv, host
from ppax.envs.settings import DEFAULT, EnvSettings
from ppax.envs.suites.registry import known, library

FAMILIES = {
    "butterfly": "pettingzoo.butterfly",
    "classic": "pettingzoo.classic",
    "mpe": "mpe2",
    "sisl": "pettingzoo.sisl",
}
EXTRA = "pettingzoo"


def ids() -> list[str]:
    """Return the ids of PettingZoo's environments, without importing them."""
    library("pettingzoo", EXTRA)
    names = []
    for family, name in FAMILIES.items():
        spec = importlib.util.find_spec(name)
        places = [] if spec is None else list(spec.submodule_search_locations or [])
        names += [f"{family}/{m.name}" for m in pkgutil.iter_modules(places) if re.search(r"_v\d+$", m.name)]
    return names


def load(env_id: str, num_envs: int, settings: EnvSettings = DEFAULT, **options: Any) -> HostEnv:
    """Return `num_envs` environments `env_id` of PettingZoo; `options` are passed to the environment's constructor.

    Raises ConfigError for an unknown id, and ImportError, naming the extra to install, if a library is missing.
    """
    family, _, name = known("pettingzoo", env_id, ids()).partition("/")
    module = library(f"{FAMILIES[family]}.{name}", EXTRA)
    make: Any = partial(getattr(module, "parallel_env", None) or module.env, **options)  # classic ones are turn-based
    return host(make, num_envs, f"pettingzoo/{env_id}", **settings.of_host())
