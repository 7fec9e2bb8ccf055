"""Adapter for Gymnasium: `ppax.make("gymnasium/LunarLander-v3")` makes host environments."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import sys
import warnings
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs import registration

from ppax.core import imports
from ppax.core.types import ConfigError
from ppax.envs.hosting.domain_randomisation import DomainRandomisation
from ppax.envs.hosting.faults import EnvError
from ppax.envs.hosting.host_env import HostEnv, host
from ppax.envs.hosting.rendering import DISPLAY
from ppax.envs.hosting.spec import steps_of_limit
from ppax.envs.hosting.time_limit import LIMIT, takes
from ppax.envs.settings import DEFAULT, EnvSettings
from ppax.envs.wrappers.params import is_range, refuse_lists, require_numbers, split_ranges

EXTRAS = ("mujoco", "box2d")  # extras, recognised by their name in Gymnasium's error


def ids() -> list[str]:
    """Return the ids that are registered in Gymnasium, the newest version of each environment."""
    newest: dict[tuple[str | None, str], gymnasium.envs.registration.EnvSpec] = {}
    for spec in gymnasium.registry.values():
        known = newest.setdefault((spec.namespace, spec.name), spec)
        if (spec.version or 0) > (known.version or 0):
            newest[spec.namespace, spec.name] = spec
    return sorted(spec.id for spec in newest.values())


def gymnasium_spec(env_id: str) -> registration.EnvSpec:
    """Return Gymnasium's registered spec of `env_id`; without a version in the id, that of the newest one.

    In "module:id" the module, which registers the id, is imported first. If an id without a module is not registered in
    any version, all packages are imported that the user has declared trusted (for example by `ppax.trust`), as one of
    them may register it. Warns if there is a newer version. Raises ConfigError for an unknown id, and Untrusted for a
    module of a package that the user has not declared trusted: ids also come from run files, which must not execute
    code by themselves.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        imports.load_module(f"gymnasium/{env_id}", "env")
    elif name not in gymnasium.registry and not _versions(name):
        imports.load_trusted(f"env = 'gymnasium/{env_id}'")
    try:
        namespace, plain, version = registration.parse_env_id(name)
        newest = registration.find_highest_version(namespace, plain)
        if version is None and newest is not None:
            name = f"{name}-v{newest}"
        elif version is not None and newest is not None and version < newest:
            warnings.warn(f"gymnasium/{name} is out of date: there is v{newest}", stacklevel=3)
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        nearest = difflib.get_close_matches(name, gymnasium.registry, n=1, cutoff=0.0)
        text = f"no environment 'gymnasium/{env_id}'; did you mean 'gymnasium/{nearest[0]}'? ({error})"
        own = "If a package registers it, --trust PACKAGE, or ppax.trust in Python, lets ppax import it"
        raise ConfigError(f"{text}. {own}") from error


def _versions(name: str) -> bool:
    """Return whether any version of this id is registered in Gymnasium; False for a malformed id."""
    try:
        namespace, plain, _ = registration.parse_env_id(name)
    except gymnasium.error.Error:
        return False
    return registration.find_highest_version(namespace, plain) is not None


def _constructor(spec: registration.EnvSpec) -> Any:
    """Return the class or function that makes the environment of a Gymnasium spec."""
    return registration.load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point


def constructor_arguments(env_id: str) -> dict[str, Any]:
    """Return the defaults of the arguments of a Gymnasium environment's constructor, by name."""
    spec = gymnasium_spec(env_id)
    if not isinstance(spec.entry_point, str):
        return dict(spec.kwargs)
    signature = inspect.signature(_constructor(spec))
    own = {
        key: p.default for key, p in signature.parameters.items() if p.default is not p.empty and key != "render_mode"
    }
    return own | dict(spec.kwargs)


def load(env_id: str, num_envs: int, settings: EnvSettings = DEFAULT, **options: Any) -> HostEnv:
    """Return `num_envs` environments `env_id` of Gymnasium, with its usual wrappers.

    `options` are arguments of `gymnasium.make`, and `max_steps`, a time limit. An option {"low": x, "high": y} is drawn
    at every reset; then each episode has a new environment. Raises ConfigError for an unknown id and ImportError,
    naming the extra to install, for a missing library.
    """
    name, spec = f"gymnasium/{env_id}", gymnasium_spec(env_id)
    # the stepper resets first and has its own checks, so two of Gymnasium's wrappers are not needed
    bare = dataclasses.replace(spec, order_enforce=False)
    if LIMIT in options and not takes(_constructor(spec), LIMIT):
        options["max_episode_steps"] = steps_of_limit(options.pop(LIMIT))
    defaults = constructor_arguments(env_id) if any(map(is_range, options.values())) else {}
    fixed, ranges = split_ranges(options, defaults)
    require_numbers(ranges, defaults)
    make: Any = partial(gymnasium.make, bare, **{"disable_env_checker": True} | fixed)
    make = partial(DomainRandomisation, make, ranges) if ranges else make
    try:
        if fixed:
            refuse_lists(fixed, _constructor(spec))
        return host(make, num_envs, name, **settings.of_host())
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        about = f"{error} {spec.entry_point}".lower()
        extra = next((extra for extra in EXTRAS if extra in about), None)
        remedy = f'{error}; what {extra} needs comes with pip install "ppax[{extra}]"' if extra else error
        raise ImportError(f"{name}: {remedy}") from error
    except EnvError as error:
        cause, drawing = error.cause, os.environ.get("MUJOCO_GL")
        if drawing and "mujoco" in str(spec.entry_point) and "mujoco" not in sys.modules:  # its import has failed
            raise ConfigError(
                f"{name}: MuJoCo cannot be loaded with MUJOCO_GL = {drawing!r} ({type(cause).__name__}: {cause}); "
                f"unset it to train; for pictures: {DISPLAY}"
            ) from cause
        if not options or not isinstance(cause, AssertionError | ValueError | TypeError):
            raise
        given = ", ".join(f"{key} = {value!r}" for key, value in options.items())
        raise ConfigError(f"env_params of {name}: {given}: {type(cause).__name__}: {cause}") from cause
