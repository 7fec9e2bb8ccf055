"""Space of a study: the swept options as distributions of Optuna, and the values of a trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import optuna

from ppax.core.options import Config
from ppax.sweeps.distributions import Choice, Integers, LogUniform, rounded


def space_of(swept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the distribution of each swept option by path. Values of a list are categories, by their JSON text.

    Options are sampled in the order of their paths, which differs between a run file and what was read from it.
    """
    return {path: _distribution(swept[path]) for path in sorted(swept)}


def values_of(swept: Mapping[str, Any], parameters: Mapping[str, Any]) -> Config:
    """Return the values of a trial's parameters, numbers with the digits that drawn ones have."""
    return {path: _value(one, parameters[path]) for path, one in swept.items()}


def _distribution(one: Any) -> Any:
    if isinstance(one, tuple | Choice):
        return optuna.distributions.CategoricalDistribution(list(_categories(one)))
    if isinstance(one, Integers):
        return optuna.distributions.IntDistribution(one.low, one.high)
    return optuna.distributions.FloatDistribution(one.low, one.high, log=isinstance(one, LogUniform))


def _value(one: Any, parameter: Any) -> Any:
    if isinstance(one, tuple | Choice):
        return _categories(one)[parameter]
    return int(parameter) if isinstance(one, Integers) else rounded(parameter)


def _categories(one: Any) -> dict[str, Any]:
    """Return the values of a list by their texts: Optuna's own categories cannot be lists, and 1 equals true."""
    return {json.dumps(value): value for value in (one if isinstance(one, tuple) else one.values)}
