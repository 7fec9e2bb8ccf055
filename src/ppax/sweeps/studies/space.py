"""Search space of a study, its samplers and its pruners, in the form that Optuna takes.

A sampler's draws are a function of seed, trial and the study's results. A database may come from a stranger, so
samplers that keep their state in it as a pickle, as Optuna's CMA-ES, are not offered.
"""

from __future__ import annotations

import importlib.util
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna

from ppax.core.options import Config
from ppax.core.types import ConfigError
from ppax.sweeps.plan import Choice, Integers, LogUniform, rounded
from ppax.sweeps.search import Optuna

SAMPLERS: dict[str, Callable[[int], Any]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, constant_liar=True),  # asks for a batch before telling
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "qmc": lambda seed: optuna.samplers.QMCSampler(scramble=True, seed=seed, warn_independent_sampling=False),
}
NEEDS = {"gp": "torch"}  # packages that Optuna does not install with itself
WHOLE = ("qmc",)  # one sequence of points for all trials, so one seed
PRUNERS: dict[str, Callable[[], Any]] = {
    "none": optuna.pruners.NopPruner,
    "median": optuna.pruners.MedianPruner,
    "percentile": lambda: optuna.pruners.PercentilePruner(25.0),
    "halving": optuna.pruners.SuccessiveHalvingPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
}


def sampler_of(settings: Optuna) -> Any:
    """Return the sampler of a study of Optuna; ConfigError where a package that it needs is missing."""
    needed = NEEDS.get(settings.sampler)
    if needed is not None and importlib.util.find_spec(needed) is None:
        raise ConfigError(
            f"search.sampler = {settings.sampler!r}: Optuna needs the package {needed} for it: pip install {needed}"
        )
    return ByTrial(settings)


class ByTrial(optuna.samplers.BaseSampler):
    """Sampler of Optuna that is seeded anew for each trial, by the search's random seed and the trial's number.

    For options that are sampled one by one, the option's path enters the seed, too. A resumed study thus proposes the
    same settings, also for a trial that was killed while it was proposed. Samplers that draw one sequence of points for
    all trials are seeded by the random seed alone, and the point of a trial that was killed so is lost.
    """

    def __init__(self, settings: Optuna):
        self._settings = settings
        self._inner = self._make(0)

    def _make(self, *numbers: int) -> Any:
        numbers = (self._settings.seed, *(0 if self._settings.sampler in WHOLE else number for number in numbers))
        return SAMPLERS[self._settings.sampler](int(np.random.SeedSequence(numbers).generate_state(1)[0]))

    def before_trial(self, study: Any, trial: Any) -> None:
        """Make Optuna's sampler for this trial and prepare it; Optuna calls this."""
        self._inner = self._make(trial.number)
        self._inner.before_trial(study, trial)

    def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
        """Return Optuna's distributions of the options that are sampled together, by path; Optuna calls this."""
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
        """Return values of the options that are sampled together, by path; Optuna calls this."""
        return self._inner.sample_relative(study, trial, search_space)

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """Return a value of one option that is sampled independently of the others; Optuna calls this."""
        alone = self._make(trial.number, zlib.crc32(param_name.encode()))
        return alone.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        """Pass the trial's result to the sampler of this trial; Optuna calls this."""
        self._inner.after_trial(study, trial, state, values)


def space_of(swept: Mapping[str, Any]) -> dict[str, Any]:
    """Return Optuna's distribution of each swept option by path; values of a list are categories, as JSON texts.

    The options are sorted by path, so that their order in the run file does not matter: Optuna samples in the order of
    the result.
    """
    return {path: _distribution(swept[path]) for path in sorted(swept)}


def values_of(swept: Mapping[str, Any], parameters: Mapping[str, Any]) -> Config:
    """Return the values of the swept options from a trial's `parameters`; numbers have six significant digits."""
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
    """Return the values of a list or Choice by their JSON texts, which are the categories for Optuna.

    Categories of Optuna cannot be lists, and 1 and true would be the same one.
    """
    return {json.dumps(value): value for value in (one if isinstance(one, tuple) else one.values)}
