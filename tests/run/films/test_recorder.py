"""Films during training: when they are made, what they show, and that training does not change."""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

import ppax
from ppax.cli.main import main
from ppax.config import EvalSettings, FilmSettings, Log
from ppax.envs import TimeLimit, VectorEnv, builtin, host
from ppax.networks import mlp
from ppax.run import films
from ppax.run.films import FilmRecorder
from support.host_worlds import DrawnMaze, Maze
from support.worlds import Counter

pytestmark = pytest.mark.usefixtures("shared_programs", "quick_programs", "vmapped_keys")

STEPS, LENGTH = 4, 6
LOG = Log(every=1, checkpoint_seconds=0.0, console=False)


def native():
    env = VectorEnv(TimeLimit(builtin.CartPole(), LENGTH), 4)
    return ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1, learning_rate=0.03), env


def on_host():
    env = host(DrawnMaze, 2)
    return ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1, learning_rate=0.03), env


def fit(agent, env, iterations=5, **changes):
    total = iterations * STEPS * env.num_streams
    return ppax.fit(agent, env, total, num_steps=STEPS, **{"log": LOG} | changes)


def films_of(run_dir):
    return [int(path.stem) for path in sorted((run_dir / "films").glob("*.gif"))]


def bits(state):
    learned = (state.learner, state.actor, jax.random.key_data(state.key))
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(learned)]


def test_a_film_of_one_episode_every_n_iterations_beside_the_same_training(tmp_path):
    run = fit(*native(), run_dir=tmp_path / "run", film=FilmSettings(every=2))
    assert films_of(tmp_path / "run") == [0, 2, 4]
    with Image.open(tmp_path / "run" / "films" / "0000000004.gif") as film:
        assert 2 <= film.n_frames <= LENGTH + 1  # equal pictures are one longer frame
        assert film.size == (300, 175)
    without = fit(*native())
    assert bits(run.state) == bits(without.state)
    assert [row["loss"] for row in run.history] == [row["loss"] for row in without.history]


def test_films_are_made_at_log_rows(tmp_path):
    """A row more would change conditions that count rows."""
    log = Log(every=3, checkpoint_seconds=0.0, console=False)
    run = fit(*native(), iterations=8, log=log, run_dir=tmp_path / "run", film=FilmSettings(every=2))
    assert [row["iteration"] for row in run.history] == [3, 6, 8]
    assert films_of(tmp_path / "run") == [0, 3, 6, 8]


def test_films_of_a_resumed_run_are_those_of_an_uninterrupted_one(tmp_path):
    settings = {"film": FilmSettings(every=2), "evaluation": EvalSettings(every=5, episodes=2)}
    fit(*native(), run_dir=tmp_path / "whole", **settings)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 3]}
    fit(*native(), run_dir=tmp_path / "part", **settings | stop)
    assert films_of(tmp_path / "part") == [0, 2]
    ppax.resume(tmp_path / "part", *native())
    assert films_of(tmp_path / "part") == films_of(tmp_path / "whole") == [0, 2, 4]
    for name in ("0000000000.gif", "0000000004.gif"):
        whole, part = ((tmp_path / run / "films" / name).read_bytes() for run in ("whole", "part"))
        assert whole == part


def test_a_resumed_run_makes_no_film_of_its_first_state(tmp_path):
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 3]}
    fit(*native(), run_dir=tmp_path / "run", film=FilmSettings(every=4), **stop)
    ppax.resume(tmp_path / "run", *native())
    assert films_of(tmp_path / "run") == [0, 4]


@pytest.fixture
def frames(monkeypatch):
    """Frames of every film, in the place of files."""
    kept = []
    monkeypatch.setattr(films, "write_video", lambda path, frames, fps: kept.append(frames))
    return kept


def test_all_films_begin_in_the_same_state(tmp_path, frames):
    fit(*native(), iterations=2, run_dir=tmp_path / "run", film=FilmSettings(every=1))
    assert len(frames) == 3
    for film in frames:
        assert len(film) == LENGTH + 1  # every state of an episode of six steps
        np.testing.assert_array_equal(film[0], frames[0][0])


def test_a_film_is_cut_after_max_steps(tmp_path, frames):
    fit(*native(), iterations=1, run_dir=tmp_path / "run", film=FilmSettings(every=1, max_steps=3))
    assert [len(film) for film in frames] == [4, 4]


def test_films_of_an_environment_on_the_host(tmp_path):
    agent, env = on_host()
    with env:
        fit(agent, env, run_dir=tmp_path / "run", film=FilmSettings(every=4))
    assert films_of(tmp_path / "run") == [0, 4]
    with Image.open(tmp_path / "run" / "films" / "0000000004.gif") as film:
        assert film.size == (8, 6)


@pytest.mark.parametrize("make", [lambda: VectorEnv(Counter(), 2), lambda: host(Maze, 2)], ids=["native", "host"])
def test_an_environment_that_cannot_be_drawn_is_refused_at_once(make, tmp_path):
    with make() as env:
        agent = ppax.PPO(mlp(env, hidden=(4,)))
        with pytest.raises(ppax.ConfigError, match=r"film.every = 2: .* cannot be drawn"):
            fit(agent, env, run_dir=tmp_path / "run", film=FilmSettings(every=2))
    assert not (tmp_path / "run").exists()


def test_films_without_a_run_directory_are_refused():
    with pytest.raises(ppax.ConfigError, match=r"film.every = 2: films are written to the run directory"):
        fit(*native(), film=FilmSettings(every=2))


def test_a_renderer_that_fails_later_ends_the_films_and_not_the_run(tmp_path, monkeypatch):
    calls = []

    def play(*arguments, **options):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("the display is gone")
        return SimpleNamespace(frames=[np.zeros((4, 4, 3), np.uint8)])

    monkeypatch.setattr(films, "play", play)
    with pytest.warns(UserWarning, match="film of iteration 1 failed .the display is gone.; no more are made"):
        run = fit(*native(), run_dir=tmp_path / "run", film=FilmSettings(every=1))
    assert len(calls) == 2
    assert films_of(tmp_path / "run") == [0]
    assert int(run.state.iteration) == 5


def test_without_films_nothing_is_drawn(monkeypatch):
    agent, env = native()
    monkeypatch.setattr(films, "backend_of", None)
    made = FilmRecorder(agent, env, ppax.config.Run())
    made.check(None)
    assert made.due(SimpleNamespace(iteration=7), Path()) is None


def test_films_on_the_command_line(tmp_path):
    sizes = ["--total-steps", "64", "--num-envs", "2", "--num-steps", "8", "--eval.episodes", "2", "--log.every", "1"]
    options = [*sizes, "--film.every", "2", "--film.max-steps", "4", "--no-log.console", "--no-cache"]
    assert main(["train", "CartPole-v1", *options, "--run-dir", str(tmp_path / "run")]) == 0
    assert films_of(tmp_path / "run") == [0, 2, 4]
