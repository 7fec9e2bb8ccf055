"""`ppax.film`: a trained policy plays whole episodes, and their frames become a video file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppax.agents.arguments import require_arguments, require_fit
from ppax.core.options import Option, check_value, require_whole
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError
from ppax.envs import Env
from ppax.policy import Policy
from ppax.run.films.play import named_returns, play
from ppax.run.films.video import require_video, write_video
from ppax.run.loading import load, load_chosen
from ppax.run.matches import in_groups_of
from ppax.run.restore import load_run
from ppax.run.result import TrainedRun
from ppax.storage.paths import require_place, to_path
from ppax.training.loop import make_key


class Film(NamedTuple):
    """Video file of whole episodes, with the return of each agent."""

    path: Path
    frames: int  # one for every state, first and final ones included
    returns: np.ndarray  # [episodes, A]
    lengths: np.ndarray  # [episodes] in steps
    finished: bool  # False: the last episode had not ended after `max_steps`
    names: tuple[str, ...] = ()  # [A] of the agents; () for one

    def returns_text(self, episode: int) -> str:
        """Return the return of each agent in one episode, with its name."""
        return named_returns(self.names, self.returns[episode])


def film(
    source: str | Path | TrainedRun | Policy,
    path: str | Path,
    env: Env | None = None,
    *,
    episodes: int = 1,
    max_steps: int = 2000,
    fps: float = 30.0,
    seed: int = 0,
    deterministic: bool = True,
    best: bool = False,
    step: int | None = None,
) -> Film:
    """Play `episodes` episodes, at most `max_steps` steps in all, and write them as the video `path`, .gif or .mp4.

    `source` is a run of `fit` or `resume`, a run directory, or a policy, which needs `env`; without `env` the other two
    play in that of the run, at the end of its schedule. `best` plays the best policy by `best.metric`, `step` the
    checkpoint of a run directory after so many environment steps, as in `ppax.load`. Needs the extra `video`; the
    environment draws itself, a compiled one by `render(state)`, one on the host with `render_mode="rgb_array"`.

    Raises ConfigError, and writes nothing, where it cannot be drawn; ImportError where the encoder is not installed.
    """
    target = to_path(path, "path")
    for name, value in {"episodes": episodes, "max_steps": max_steps}.items():
        require_whole(value, name)
    check_value(Option("fps", float, limits={"low": 1.0}), fps)
    require_video(target)
    player = _player(source, env, best, step)
    require_place(target, "play.gif")
    key = make_key(seed)
    played = play(player.agent, player.env, player.learner, key, episodes, deterministic, max_steps)
    count = write_video(target, played.frames, fps)
    return Film(target, count, played.returns, played.lengths, played.finished, played.names)


class Player(NamedTuple):
    """Agent with what acting reads of its learner, and its environment."""

    agent: Agent
    env: Env
    learner: Any  # of a policy on the host


def _player(source: str | Path | TrainedRun | Policy, env: Env | None, best: bool, step: int | None) -> Player:
    """Return the policy of `source` and the environment in which it plays; ConfigError where there is none."""
    if isinstance(source, str | Path):
        if env is None:
            agent, env, run = load_run(Path(source))
            return Player(agent, env, load_chosen(Path(source), agent, env, run, best, step).learner)
        source, best, step = load(source, best, step=step), False, None
    if step is not None:
        raise ConfigError(f"step = {step}: pass the run directory, whose checkpoints have steps")
    if isinstance(source, TrainedRun):
        env = source.env if env is None else env
        source = source.policy(best)
    elif best:
        raise ConfigError("best = True: a policy is one of its run already: ppax.load(run_dir, best=True)")
    if not isinstance(source, Policy):
        raise ConfigError(f"source: a {type(source).__name__}; must be a run, a run directory or a policy")
    if env is None:
        raise ConfigError("env: a policy has no environment: pass one, as ppax.film(policy, path, env)")
    env = in_groups_of(source, env)
    require_arguments(source.agent, env)
    require_fit(source.agent, env)
    return Player(source.agent, env, source.learner)
