"""`play`: frames of whole episodes, and their video files."""

import itertools
import json
from functools import partial
from types import SimpleNamespace

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from PIL import Image

import ppax
from ppax.cli import main
from ppax.config import BestSettings, Log
from ppax.envs import TimeLimit, VectorEnv, builtin, host
from ppax.envs.wrappers.wrapper import render
from ppax.networks import mlp
from ppax.run.films import play, write_video
from support.host_worlds import NEXT, REWARD, DrawnMaze, Maze
from support.worlds import Counter

ENV = VectorEnv(TimeLimit(builtin.CartPole(), 6), 4)


def learner(env):
    agent = ppax.PPO(mlp(env, hidden=(8,)))
    return agent, ppax.start(agent, env, 4, jax.random.key(0)).learner


def test_frames_are_those_of_whole_episodes():
    agent, weights = learner(ENV)
    played = play(agent, ENV, weights, jax.random.key(1), episodes=3)
    assert played.finished
    assert (played.lengths == 6).all()  # no pole falls in six steps
    np.testing.assert_array_equal(played.returns, [[6.0]] * 3)
    assert len(played.frames) == 3 * (6 + 1)  # six steps and the first state, three times
    starts = [played.frames[i] for i in (0, 7, 14)]
    assert all(x.shape == (175, 300, 3) for x in played.frames)
    assert (starts[1] != played.frames[6]).any()  # the next episode begins in another state than the last one ended


def test_play_stops_after_max_steps():
    agent, weights = learner(ENV)
    played = play(agent, ENV, weights, jax.random.key(1), episodes=3, max_steps=5)
    assert not played.finished
    assert played.lengths.tolist() == [5]
    assert len(played.frames) == 6


def test_play_stops_after_max_seconds(monkeypatch):
    clock = itertools.count()  # one second from one look to the next
    monkeypatch.setattr("ppax.run.films.time", SimpleNamespace(monotonic=lambda: next(clock)))
    played = play(*learner(ENV)[:1], ENV, learner(ENV)[1], jax.random.key(1), max_seconds=2.0)
    assert not played.finished
    assert played.lengths.tolist() == [3]
    assert len(played.frames) == 4


def test_each_agent_has_its_own_return():
    env = VectorEnv(TimeLimit(builtin.Pursuit(), 4), 2)
    played = play(*learner(env)[:1], env, learner(env)[1], jax.random.key(3))
    assert played.returns.shape == (1, 2)
    assert played.returns[0, 0] == -played.returns[0, 1]  # rewards are zero-sum


def test_an_environment_without_render_is_refused():
    with pytest.raises(ppax.ConfigError, match=r"Counter cannot be drawn: give the class a method render\(state\)"):
        render(TimeLimit(Counter(), 3), TimeLimit(Counter(), 3).reset(jax.random.key(0)).state)


# ---------------------------------------------------------------- on the host


def test_frames_of_a_host_environment_follow_its_episodes():
    """The shade of a frame encodes state and time: frames are of whole episodes and agree with their returns."""
    env = host(DrawnMaze, 3)
    agent, weights = learner(env)
    played = play(agent, env, weights, jax.random.key(2), episodes=3, deterministic=False)
    assert played.finished
    times = [int(x[0, 0, 0]) % 10 for x in played.frames]
    states = [int(x[0, 0, 0]) // 10 for x in played.frames]
    at = 0
    for length, reward in zip(played.lengths, played.returns[:, 0], strict=True):
        assert times[at : at + length + 1] == list(range(length + 1))
        moves = list(zip(states[at : at + length], states[at + 1 : at + length + 1], strict=True))
        assert all(after in NEXT[before] for before, after in moves)
        worth = [{REWARD[b, a] for a in range(3) if NEXT[b, a] == c} for b, c in moves]
        assert min(abs(sum(way) - reward) for way in itertools.product(*worth)) < 1e-5
        at += length + 1
    assert at == len(times)
    assert env.host.position == 0  # the environments of the training are not stepped


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (lambda: host(Maze, 2, name="maze"), r"its render modes are \[\], without"),
        (lambda: host(partial(Modes, ["rgb_array"]), 2, name="maze"), r"render\(\) gave None; the class has to take"),
        (
            lambda: host(partial(Modes, ["ansi"]), 2, name="maze"),
            r"its render modes are \['ansi'\], without 'rgb_array'",
        ),
        (lambda: host(Dark, 2, name="maze"), "cannot be drawn: RuntimeError: no OpenGL here; .* MUJOCO_GL=egl"),
        (lambda: host(SyncVectorEnv([Maze]), name="maze"), "maze is a vector environment"),
    ],
    ids=["none", "nothing", "others", "dark", "vector"],
)
def test_host_environments_without_pictures_are_refused(env, said):
    env = env()
    agent = ppax.PPO(mlp(env, hidden=(8,)))
    weights = jax.eval_shape(lambda: ppax.start(agent, env, 4, jax.random.key(0))).learner  # shapes are enough
    with pytest.raises(ppax.ConfigError, match=said):
        play(agent, env, weights, jax.random.key(0))


class Dark(DrawnMaze):
    def render(self):
        raise RuntimeError("no OpenGL here")


class Modes(Maze):
    def __init__(self, modes):
        self.metadata = {"render_modes": modes}


@pytest.mark.nightly
def test_the_command_play_with_a_host_environment(tmp_path, capsys):
    run, options = tmp_path / "run", ["--num-envs", "2", "--num-steps", "8", "--total-steps", "32", "--no-cache"]
    options += ["--agent.network.hidden", "8", "--agent.num-epochs", "1", "--eval.episodes", "2"]
    gymnasium.register("Drawn-v0", DrawnMaze)
    try:
        assert main.main(["train", "gymnasium/Drawn-v0", *options, "--run-dir", str(run)]) == 0
        capsys.readouterr()
        assert main.main(["play", str(run), "--episodes", "2", "--sampled", "--json", "--no-cache"]) == 0
    finally:
        del gymnasium.registry["Drawn-v0"]
    out = json.loads(capsys.readouterr().out)
    assert out["finished"]
    assert out["frames"] == sum(out["lengths"]) + 2
    with Image.open(run / "play.gif") as film:
        assert film.size == (8, 6)


def moving(count, height=21, width=31):
    frames = np.zeros((count, height, width, 3), np.uint8)
    for i in range(count):
        frames[i, :, 2 * i : 2 * i + 3] = 255
    return frames


def test_a_gif_has_every_frame(tmp_path):
    frames = moving(8)
    assert write_video(tmp_path / "a.gif", frames, 25) == 8
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 8
        assert film.info["duration"] == 40
        for i in range(8):
            film.seek(i)
            np.testing.assert_allclose(np.asarray(film.convert("RGB"), int), frames[i], atol=2)


@pytest.mark.parametrize("fps", [24, 30, 40, 49, 50])
def test_a_gif_plays_at_its_speed(tmp_path, fps):
    """Its times are whole hundredths of a second, of which viewers show none below two."""
    write_video(tmp_path / "a.gif", moving(13), fps)
    with Image.open(tmp_path / "a.gif") as film:
        durations = []
        for i in range(film.n_frames):
            film.seek(i)
            durations.append(film.info["duration"])
    assert min(durations) >= 20
    np.testing.assert_allclose(np.cumsum(durations), 1000 * np.arange(1, 14) / fps, atol=5.0)


def test_a_gif_has_at_most_50_frames_per_second(tmp_path):
    run = ppax.build("CartPole-v1", num_envs=2, num_steps=4, total_steps=8, log=ppax.Log(console=False)).fit()
    with pytest.raises(ppax.ConfigError, match=r"fps = 60: a \.gif has at most 50 .* nearest valid value: 50"):
        ppax.film(run, tmp_path / "a.gif", fps=60)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # to count frames, imageio_ffmpeg starts ffmpeg
def test_an_mp4_has_every_frame(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    write_video(tmp_path / "a.mp4", moving(8), 25)  # odd sides are made even
    count, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert count == 8
    assert seconds == pytest.approx(8 / 25, abs=0.02)


def test_other_formats_are_refused():
    with pytest.raises(ppax.ConfigError, match=r"as \.gif or \.mp4; nearest valid value: film\.gif"):
        write_video(__import__("pathlib").Path("film.avi"), moving(2), 25)


def test_the_command_play(tmp_path, capsys):
    agent = ppax.PPO(mlp(ppax.make("CueCorridor-10", 4), hidden=(8,)))
    run = tmp_path / "run"
    options = {"log": Log(console=False), "best": BestSettings(metric="episode_return")}
    ppax.fit(agent, ppax.make("CueCorridor-10", 4), 256, num_steps=16, run_dir=run, **options)
    capsys.readouterr()
    assert main.main(["play", str(run), "--episodes", "2", "--json", "--no-cache"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["lengths"] == [11, 11]
    assert out["frames"] == 24
    with Image.open(run / "play.gif") as film:
        assert film.n_frames > 1
    assert main.main(["play", str(run), "--best", "--out", str(tmp_path / "best.gif"), "--no-cache"]) == 0
    assert (tmp_path / "best.gif").exists()
    assert main.main(["play", str(run), "--episodes", "0"]) == 2
    assert "--episodes = 0: must be at least 1" in capsys.readouterr().err
