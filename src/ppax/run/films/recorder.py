"""Films during training: every N iterations the current policy plays one episode in a separate environment."""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path

from ppax.arrays import counter
from ppax.config import Run
from ppax.core.protocols import Agent, Artifact
from ppax.core.types import ConfigError, TrainState
from ppax.devices import sharding
from ppax.envs import Env
from ppax.run.films.play import play
from ppax.run.films.video import require_video, write_video
from ppax.training.backends import backend_of
from ppax.training.loop import make_key

FOLDER = "films"  # folder of the films in a run directory
FRAMES_PER_SECOND = 30.0
MAX_SECONDS = 60.0  # time limit for playing and drawing one film; later steps are left out


class FilmRecorder:
    """Recorder of a run's films. All begin with the same key, in the same first state, so that they can be compared."""

    def __init__(self, agent: Agent, env: Env, run: Run):
        """Record as `run.film` says, with actions as in evaluations."""
        self._agent, self._env, self._every, self._max_steps = agent, env, run.film.every, run.film.max_steps
        self._deterministic, self._seed = run.eval.deterministic, run.seed
        self._films = -1  # number of the latest film: iteration // every

    def check(self, run_dir: object) -> None:
        """Draw one state; ConfigError, or ImportError with the extra to install, if there can be no films."""
        if self._every is None:
            return
        if run_dir is None:
            raise ConfigError(
                f"film.every = {self._every}: films are written to the run directory, and there is none; pass "
                'run_dir="runs/mine", or leave it out'
            )
        require_video(Path("film.gif"))
        try:
            backend_of(self._env).first_picture(make_key(self._seed))
        except ConfigError as error:
            raise ConfigError(f"film.every = {self._every}: {error}") from error

    def resume(self, iteration: int) -> None:
        """Count the films up to `iteration` as made."""
        if self._every is not None and iteration:
            self._films = iteration // self._every

    def due(self, state: TrainState, run_dir: Path | None) -> Artifact | None:
        """Record a film if none was made since the latest multiple of `every` iterations; else None."""
        iteration = int(state.iteration)
        if self._every is None or run_dir is None or iteration // self._every <= self._films:
            return None
        self._films = iteration // self._every
        path = run_dir / FOLDER / f"{iteration:010d}.gif"
        try:
            self._record(state, path)
        except Exception as error:  # any exception of a renderer; training goes on
            self._every = None
            trace = "".join(traceback.format_exception(error)).rstrip()
            warnings.warn(f"film of iteration {iteration} failed ({error}); no more are made\n{trace}", stacklevel=2)
            return None
        return Artifact("film", {path.name: path}, counter.to_int(state.env_steps))

    def _record(self, state: TrainState, path: Path) -> None:
        played = play(
            self._agent,
            self._env,
            sharding.local(state.learner),
            make_key(self._seed),
            deterministic=self._deterministic,
            max_steps=self._max_steps,
            max_seconds=MAX_SECONDS,
        )
        path.parent.mkdir(exist_ok=True)
        write_video(path, played.frames, FRAMES_PER_SECOND)
