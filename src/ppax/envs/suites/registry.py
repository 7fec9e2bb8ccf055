"""Registry of the suites of environments, and functions that their adapters share.

Each suite's library is installed by ppax's extra of the suite's name, as `pip install "ppax[brax]"`; Gymnasium is
always installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppax.core.types import ConfigError, PyTree
from ppax.envs.hosting.action_filter import FILTER
from ppax.envs.hosting.faults import EnvError
from ppax.envs.hosting.host_env import HostEnv
from ppax.envs.settings import EnvSettings


class Suite(NamedTuple):
    """Description of a suite of compiled environments, which can be read without importing the suite's library.

    `library` is this library's module. `expensive_resets` says that a reset costs as much as many steps, and
    `follows_params` that spaces depend on an environment's parameters.
    """

    library: str  # module that the extra installs
    expensive_resets: bool = False  # a reset costs as much as many steps: use a pool (envs/vector.py)
    follows_params: bool = False  # spaces depend on parameters that are set afterwards: `with_spaces` of the adapter


SUITES = {
    "brax": Suite("brax"),
    "craftax": Suite("craftax", expensive_resets=True),
    "gymnax": Suite("gymnax", follows_params=True),
    "jaxmarl": Suite("jaxmarl"),
    "jumanji": Suite("jumanji"),
    "navix": Suite("navix"),
    "pgx": Suite("pgx"),
    "playground": Suite("mujoco_playground"),
    "popgym_arcade": Suite("popgym_arcade"),
    "xminigrid": Suite("xminigrid"),
}
# Suites whose environments are stepped on the host, and the module that each needs
HOST_SUITES = {
    "gymnasium": "gymnasium",
    "atari": "ale_py",
    "dm_control": "dm_control",
    "envpool": "envpool",
    "minigrid": "minigrid",
    "pettingzoo": "pettingzoo",
}


def load(suite: str, env_id: str, options: Mapping[str, Any] | None = None, *arguments: Any) -> Any:
    """Return the environment `env_id` of a suite, made with `options`, arguments of the suite's own constructor.

    `arguments` go to the adapter's `load` after `env_id`. Compiled environments get lists among `options` as tuples,
    which are hashable: adapters keep one environment for each set of options. Raises ImportError, naming the extra, if
    the suite is not installed, and ConfigError for options that it does not accept.
    """
    adapter = _adapter(suite)
    given = dict(options or {})
    if suite in SUITES:
        given = {name: tupled(value) for name, value in given.items()}
    try:
        return adapter.load(env_id, *arguments, **given)
    except (TypeError, EnvError) as error:
        cause = error.cause if isinstance(error, EnvError) else error
        if not options or not isinstance(cause, TypeError):
            raise
        raise ConfigError(f"env_params of {suite}/{env_id}: {cause}") from cause


def tupled(value: Any) -> Any:
    """Return a value with tuples in place of lists, also inside of lists and tuples."""
    return tuple(map(tupled, value)) if type(value) in (list, tuple) else value


def load_host(suite: str, env_id: str, num_envs: int, settings: EnvSettings) -> HostEnv:
    """Return `num_envs` environments `env_id` of a suite on the host. Errors as in `load`."""
    options = {name: value for name, value in settings.env_params.items() if name != FILTER}  # that is a wrapper
    return dataclasses.replace(load(suite, env_id, options, num_envs, settings), made=settings)  # type: ignore[no-any-return]


def require_adapted(env: object) -> None:
    """Raise ConfigError for an environment object of a suite's library, which only `make` adapts to ppax's protocol.

    Environments of ppax itself are adapted already: a suite's library may be ppax where it needs no other.
    """
    libraries = {suite.library: name for name, suite in SUITES.items() if suite.library != "ppax"}
    for cls in type(env).__mro__:
        if suite := libraries.get(cls.__module__.partition(".")[0]):
            raise ConfigError(
                f"env: a {type(env).__name__} is an environment of {suite}, which has an interface of its own: write "
                f'ppax.make("{suite}/ID", num_envs=64), with the id under which it is registered there'
            )


def with_spaces(suite: str, env: Any, env_params: Mapping[str, Any]) -> Any:
    """Return an environment of a suite with the spaces for the values that `env_params` give its parameters.

    In most suites the spaces depend on no parameter, and `env` is returned unchanged. `env_params` has, by name, a
    value or a range with "low" and "high".
    """
    return _adapter(suite).with_spaces(env, env_params) if SUITES[suite].follows_params and env_params else env


def ids(suite: str) -> list[str]:
    """Return all ids of the environments of an installed suite, such as "brax"."""
    names: list[str] = _adapter(suite).ids()
    return names


def installed(suite: str) -> bool:
    """Return whether the suite's library is installed; nothing is imported."""
    library = HOST_SUITES[suite] if suite in HOST_SUITES else SUITES[suite].library
    return importlib.util.find_spec(library) is not None


def _adapter(suite: str) -> Any:
    return importlib.import_module(f"ppax.envs.suites.{suite}")


# Functions of all adapters of suites: optional imports, explicit dtypes, and errors for unknown names.

NO_LIMIT = 2**30  # steps of an episode that no episode reaches; int32 counters do not overflow there
NEWER = {"navix": (3, 12)}  # minimum Python version of an extra, as in pyproject.toml


def library(module: str, extra: str) -> Any:
    """Return an optional module, imported; ImportError with the extra of ppax to install if it is missing.

    Lines that the module prints go to standard error, because standard output is for results.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(module)
    except ImportError as error:
        minimum = NEWER.get(extra, (3, 11))
        if sys.version_info < minimum:
            versions = "{}.{} or newer; this is {}.{}".format(*minimum, *sys.version_info)
            raise ImportError(f"{module} cannot be imported ({error}): {extra} needs Python {versions}") from error
        raise ImportError(f'{module} cannot be imported ({error}): pip install "ppax[{extra}]"') from error


def known(suite: str, env_id: str, ids: Iterable[str]) -> str:
    """Return `env_id` if it is one of `ids` of the suite; else raise ConfigError with the nearest one."""
    valid = list(ids)
    if env_id in valid:
        return env_id
    nearest = difflib.get_close_matches(env_id, valid, n=1, cutoff=0.0)[0]
    raise ConfigError(f"{suite} has no environment {env_id!r}; did you mean '{suite}/{nearest}'?")


def strong(tree: PyTree) -> PyTree:
    """Return the tree without JAX's weak types, with which the dtype of a scan's carry would change.

    Values are weakly typed where a suite makes them of Python numbers.
    """

    def one(x: Any) -> Any:
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)

    return jax.tree.map(one, tree)
