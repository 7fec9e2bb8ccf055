"""Presets in Python, the tuned runs that `ppax presets` lists, and recommended runs by the kind of environment."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from ppax import config, imports
from ppax.config import Run
from ppax.envs import Env
from ppax.options import Config, flatten, unflatten
from ppax.protocols import Agent, Callback, Logger, StopCondition
from ppax.run.fit import fit_run
from ppax.run.result import TrainedRun
from ppax.types import ConfigError


class Preset(NamedTuple):
    """Tuned run: agent, environment and run settings."""

    agent: Agent
    env: Env
    run: Run

    def fit(
        self,
        run_dir: str | Path | None = None,
        callbacks: Sequence[Callback | Logger | StopCondition] = (),
        *,
        overwrite: bool = False,
    ) -> TrainedRun:
        """Train the preset as `ppax train` does; `run_dir`, `callbacks` and `overwrite` as in `ppax.fit`."""
        return fit_run(self.agent, self.env, self.run, run_dir, callbacks, overwrite=overwrite)


def preset(name: str, **options: Any) -> Preset:
    """Return the tuned run `name` (`ppax presets` lists them); `ppax.preset("CartPole-v1").fit()` trains it.

    `options` override its run file, with the same names: `seed=3, agent={"learning_rate": 1e-4}`. Raises ConfigError
    for an unknown name, with the nearest one, and for invalid options.
    """
    with _trusting(options):
        return Preset(*config.build(config.overridden(preset_config(name), options)))


def preset_config(name: str) -> Config:
    """Return the run file of a preset as data; ConfigError for an unknown name, with the nearest one."""
    presets = config.presets()
    if name not in presets:
        nearest = difflib.get_close_matches(name, presets, n=1, cutoff=0.0)[0]
        raise ConfigError(f"no preset {name!r}; did you mean {nearest!r}? There are: {', '.join(presets)}")
    return config.read(presets[name])


def recommended(env: str | Env, **options: Any) -> Preset:
    """Return a run of `env` with the settings for its kind: compiled or host, discrete, continuous or images.

    `env` is an environment or its name, as `ppax.make` takes it; `ppax.recommended("brax/ant").fit()` trains it. A
    preset, where there is one, is better. `options` override settings as in `preset`. The table of settings, with a
    reason for each, is docs/defaults.md. Raises ConfigError for an unknown environment or an invalid option.
    """
    given = unflatten(dict(flatten(options)))
    with _trusting(given):
        if isinstance(env, str):
            return Preset(*config.build(config.recommended({"env": env} | given).config))
        fields = env.settings.run_fields().items()
        settings = {name: value for name, value in fields if value != {} and name != "schedule"}  # `env` has its own
        run_config = config.recommended(settings | given, env).config
        return Preset(*config.build(run_config, env))


def _trusting(options: Config) -> AbstractContextManager[None]:
    """Context that trusts the paths and addresses among arguments of Python."""
    return imports.trusting({one.name for one in config.outside(options).values()})
