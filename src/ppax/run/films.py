"""Films: a policy plays whole episodes, whose frames become a video file, after training or at intervals during it."""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppax.arrays import counter
from ppax.config import Run
from ppax.core.options import Option, check_value, require_whole
from ppax.core.protocols import Agent, Artifact, Scene
from ppax.core.types import ConfigError, Key, LearnerState, TrainState
from ppax.devices import sharding
from ppax.envs import Env, for_evaluation
from ppax.policy import Policy
from ppax.policy.bundle import is_bundle
from ppax.run.loading import env_of_bundle, load, load_chosen, local_path
from ppax.run.matches import in_groups_of
from ppax.run.restore import load_run
from ppax.run.result import TrainedRun
from ppax.storage import safe_files
from ppax.storage.paths import require_place, to_path
from ppax.training.arguments import require_arguments, require_fit
from ppax.training.backends import backend_of
from ppax.training.loop import make_key


class Film(NamedTuple):
    """Video file of played episodes: its path, and the returns and lengths of the episodes.

    `finished` is False if the last episode had not ended after the largest number of steps. `names` are those of the
    agents, () for a single agent.
    """

    path: Path
    frames: int  # one for every state, first and final ones included
    returns: np.ndarray  # [episodes, A]
    lengths: np.ndarray  # [episodes] in steps
    finished: bool  # False: the last episode had not ended after `max_steps`
    names: tuple[str, ...] = ()  # [A] of the agents; () for one

    def returns_text(self, episode: int) -> str:
        """Return the returns of one episode as text, each with the name of its agent."""
        return returns_text(self.names, self.returns[episode])


def returns_text(names: Sequence[str], returns: np.ndarray) -> str:
    """Return the returns [A] of one episode as text, each with its agent's name; `names` is () for one agent."""
    words = [f"{name} " for name in names] or [""]
    return ", ".join(f"{word}{x:.2f}" for word, x in zip(words, returns, strict=True))


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
    env_params: Mapping[str, Any] | None = None,
) -> Film:
    """Play `episodes` episodes, at most `max_steps` steps in all, write them as the video `path`, and return its data.

    `path` ends in .gif or .mp4; a GIF has at most 50 frames per second, `fps`. `source` is a run of `fit` or `resume`,
    a run directory, a bundle, also one on the Hugging Face Hub, "hf://OWNER/NAME", or a policy, which needs `env`;
    without `env` a run, run directory or bundle plays in the environment of its evaluations: with the run's
    `eval.env_params`, and, if a schedule changes parameters of the environment during training, with their last
    values. `env_params`, such as {"gravity": 15.0}, have priority over the parameters of that environment or of `env`.
    With `best` the best policy by `best.metric` plays, with `step` the checkpoint of a run directory after so many
    environment steps, as in `ppax.load`. Needs the extra `video`. Pictures come from the environment: from
    `render(state)` of a compiled one, with `render_mode="rgb_array"` on the host.

    Raises ConfigError, and writes nothing, if the environment gives no pictures; ImportError if the video encoder is
    not installed.
    """
    target = to_path(path, "path")
    for name, value in {"episodes": episodes, "max_steps": max_steps}.items():
        require_whole(value, name)
    check_value(Option("fps", float, limits={"low": 1.0}), fps)
    require_video(target, fps)
    agent, env, learner = _player(source, env, best, step)
    env = for_evaluation(env, env_params or {})
    require_place(target, "play.gif")
    key = make_key(seed)
    played = play(agent, env, learner, key, episodes, deterministic, max_steps)
    count = write_video(target, played.frames, fps)
    return Film(target, count, played.returns, played.lengths, played.finished, played.names)


def _player(
    source: str | Path | TrainedRun | Policy, env: Env | None, best: bool, step: int | None
) -> tuple[Agent, Env, Any]:
    """Return agent, environment and learner (trained weights and statistics) to play with, taken from `source`.

    `source` is a run directory, a bundle, a trained run or a policy. `best` and `step` choose the policy of a run: its
    best one, or the one after so many environment steps. `env` None stands for that of the run's evaluations. Raises
    ConfigError where there is no such policy or environment.
    """
    if isinstance(source, str | Path):
        path = local_path(source)
        if env is None and is_bundle(path):
            policy = load(path, best, step=step)
            return _player(policy, env_of_bundle(path, policy), False, None)
        if env is None:
            agent, env, run = load_run(path)
            learner = load_chosen(path, agent, env, run, best, step).learner
            return agent, for_evaluation(env, run.eval.env_params), learner
        source, best, step = load(path, best, step=step), False, None
    if step is not None:
        raise ConfigError(f"step = {step}: pass the run directory, whose checkpoints have steps")
    if isinstance(source, TrainedRun):
        env = for_evaluation(source.env, source.eval_settings.env_params) if env is None else env
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
    return source.agent, env, source.learner


class RenderedEpisodes(NamedTuple):
    """Rendered episodes: the frames of all, one after the other, and the returns and lengths of the episodes.

    `finished` is False if the last episode had not ended when the limit of steps or seconds was reached. `names` are
    those of the agents, () for a single agent.
    """

    frames: list[np.ndarray]  # [H, W, 3] each; one for every state, first and final ones included
    returns: np.ndarray  # [episodes, A]
    lengths: np.ndarray  # [episodes] in steps
    finished: bool  # False: the last episode had not ended after `max_steps` or `max_seconds`
    names: tuple[str, ...] = ()  # [A] of the agents; () for one


def play(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    key: Key,
    episodes: int = 1,
    deterministic: bool = True,
    max_steps: int = 2000,
    max_seconds: float = math.inf,
) -> RenderedEpisodes:
    """Return `episodes` episodes played in one environment, with every state rendered.

    At most `max_steps` steps are played in all, and none after `max_seconds` seconds. A host environment is constructed
    again with `render_mode = "rgb_array"`. Raises ConfigError where the environment cannot be rendered.
    """
    with backend_of(env).scene(agent, learner, key, deterministic) as scene:
        return _film(scene, env.num_agents, episodes, max_steps, max_seconds)._replace(names=env.agent_names)


def _film(scene: Scene, agents: int, episodes: int, max_steps: int, max_seconds: float) -> RenderedEpisodes:
    begin = time.monotonic()
    frames, returns, lengths, ended = [scene.picture()], [np.zeros(agents)], [0], False
    for t in range(max_steps):
        result = scene.move(t)
        frames.append(scene.picture())
        if ended:  # this step was the autoreset
            returns.append(np.zeros(agents))
            lengths.append(0)
        returns[-1] = returns[-1] + result.reward
        lengths[-1] += result.counts
        ended = result.ended
        if (ended and len(lengths) == episodes) or time.monotonic() - begin > max_seconds:
            break
    return RenderedEpisodes(frames, np.stack(returns), np.array(lengths), ended and len(lengths) == episodes)


FOLDER = "films"  # folder of the films in a run directory
FRAMES_PER_SECOND = 30.0
MAX_SECONDS = 60.0  # time limit for playing and drawing one film; later steps are left out


class FilmRecorder:
    """Recorder of a run's films: every `film.every` iterations the policy plays an episode in a separate environment.

    All films begin with the same random key, in the same first state, so that they can be compared.
    """

    def __init__(self, agent: Agent, env: Env, run: Run):
        """Prepare films as `run.film` says; actions are sampled or deterministic as in the run's evaluations."""
        self._agent, self._every, self._max_steps = agent, run.film.every, run.film.max_steps
        self._env = env if self._every is None else for_evaluation(env, run.eval.env_params)
        self._deterministic, self._seed = run.eval.deterministic, run.seed
        self._films = -1  # number of the latest film: iteration // every

    def check(self, run_dir: object) -> None:
        """Raise ConfigError, or ImportError with the extra to install, if the run's films cannot be made.

        Draws one state to find out. Does nothing in a run without films. A run with films needs a `run_dir`: None is an
        error.
        """
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
        """Count the run's films up to `iteration`, from which a run is resumed, as made already."""
        if self._every is not None and iteration:
            self._films = iteration // self._every

    def wanted(self, iteration: int) -> bool:
        """Return True if a film is due after `iteration` iterations.

        It is due if the last film was made before the latest multiple of `film.every` iterations.
        """
        return self._every is not None and iteration // self._every > self._films

    def due(self, state: TrainState, run_dir: Path | None) -> Artifact | None:
        """Record a film of the policy in `state` into `run_dir`, if one is due, and return its file; else return None.

        A film is due if the last one was made before the latest multiple of `film.every` iterations. If recording
        fails, a warning says why, None is returned, and no more films are made.
        """
        iteration = int(state.iteration)
        if self._every is None or run_dir is None or not self.wanted(iteration):
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


FORMATS = (".gif", ".mp4")
GIF_FASTEST = 50.0  # frames per second: times are in 1/100 s, and viewers show frames of 0.01 s far too slowly


def require_video(path: Path, frames_per_second: float = FRAMES_PER_SECOND) -> None:
    """Raise ConfigError if `path` ends in neither .gif nor .mp4, or if the format cannot have that many frames.

    Raises ImportError if the format's encoder is missing.
    """
    if path.suffix not in FORMATS:
        nearest = path.with_suffix(".gif") if path.name else "episode.gif"
        raise ConfigError(f"{path}: write a video as .gif or .mp4; nearest valid value: {nearest}")
    if path.suffix == ".gif" and frames_per_second > GIF_FASTEST:
        raise ConfigError(
            f"fps = {frames_per_second:g}: a .gif has at most {GIF_FASTEST:g} frames per second; nearest valid value: "
            f"{GIF_FASTEST:g}, or write an .mp4"
        )
    try:
        if path.suffix == ".gif":
            import PIL.Image  # noqa: F401
        else:
            import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{path.suffix} needs {error.name}: pip install "ppax[video]"') from error


def write_video(path: Path, frames: Iterable[np.ndarray], frames_per_second: float) -> int:
    """Write frames, uint8 [H, W, 3] and all of one size, as a video, and return their number.

    `path` ends in .gif or .mp4, which chooses the format. Raises ConfigError for another ending, and for more frames
    per second than the format can have; ImportError if the format's encoder is not installed.
    """
    require_video(path, frames_per_second)
    pictures = list(frames)
    with safe_files.replacing(path) as partial:
        write = _write_gif if path.suffix == ".gif" else _write_mp4
        write(partial, pictures, frames_per_second)
    return len(pictures)


def _write_gif(path: Path, pictures: list[np.ndarray], frames_per_second: float) -> None:
    from PIL import Image

    # one palette for all frames: a palette for each would flicker
    palette = Image.fromarray(np.concatenate(pictures[:: max(1, len(pictures) // 8)])).quantize(128)
    images = [Image.fromarray(x).quantize(palette=palette, dither=Image.Dither.NONE) for x in pictures]
    # a frame lasts a whole number of 1/100 s: rounded so that each begins when it should, without a drift
    begins = np.round(100 * np.arange(len(images) + 1) / frames_per_second).astype(int)
    durations = (10 * np.diff(begins)).tolist()
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0)


def _write_mp4(path: Path, pictures: list[np.ndarray], frames_per_second: float) -> None:
    import imageio_ffmpeg

    height, width = (side + side % 2 for side in pictures[0].shape[:2])  # the codec requires even sizes
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=frames_per_second, macro_block_size=2)
    with warnings.catch_warnings():  # JAX warns of every fork; the child runs ffmpeg and no JAX
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        writer.send(None)
    for x in pictures:
        writer.send(np.pad(x, ((0, height - x.shape[0]), (0, width - x.shape[1]), (0, 0)), mode="edge").tobytes())
    writer.close()
