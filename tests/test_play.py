"""Playing a policy: the frames are of the episodes that were played, and the film holds them."""

import json

import jax
import numpy as np
import pytest
from PIL import Image

import ppax
from ppax import cli
from ppax.config import Best, Log
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.envs.rendering import render
from ppax.networks import mlp
from ppax.play import play
from ppax.video import write_video
from worlds import Counter

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
    assert (starts[1] != played.frames[6]).any()  # the next episode begins elsewhere than the last one ended


def test_it_stops_after_so_many_steps():
    agent, weights = learner(ENV)
    played = play(agent, ENV, weights, jax.random.key(1), episodes=3, max_steps=5)
    assert not played.finished
    assert played.lengths.tolist() == [5]
    assert len(played.frames) == 6


def test_each_agent_has_its_own_return():
    env = VectorEnv(TimeLimit(builtin.Pursuit(), 4), 2)
    played = play(*learner(env)[:1], env, learner(env)[1], jax.random.key(3))
    assert played.returns.shape == (1, 2)
    assert played.returns[0, 0] == -played.returns[0, 1]  # what one gains the other loses


def test_an_environment_without_pictures_is_refused_in_words():
    with pytest.raises(ppax.ConfigError, match=r"Counter cannot be drawn: give the class a method render\(state\)"):
        render(TimeLimit(Counter(), 3), TimeLimit(Counter(), 3).reset(jax.random.key(0)).state)


def moving(count, height=21, width=31):
    frames = np.zeros((count, height, width, 3), np.uint8)
    for i in range(count):
        frames[i, :, 2 * i : 2 * i + 3] = 255
    return frames


def test_gif_has_every_frame(tmp_path):
    frames = moving(8)
    assert write_video(tmp_path / "a.gif", frames, 25) == 8
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 8
        assert film.info["duration"] == 40
        for i in range(8):
            film.seek(i)
            np.testing.assert_allclose(np.asarray(film.convert("RGB"), int), frames[i], atol=2)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # to count frames, imageio_ffmpeg starts ffmpeg
def test_mp4_has_every_frame(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    write_video(tmp_path / "a.mp4", moving(8), 25)  # odd sides are made even
    count, seconds = ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert count == 8
    assert seconds == pytest.approx(8 / 25, abs=0.02)


def test_other_formats_are_refused():
    with pytest.raises(ppax.ConfigError, match=r"as \.gif or \.mp4; nearest valid value: film\.gif"):
        write_video(__import__("pathlib").Path("film.avi"), moving(2), 25)


def test_command_line(tmp_path, capsys):
    agent = ppax.PPO(mlp(ppax.make("CueCorridor-10", 4), hidden=(8,)))
    run = tmp_path / "run"
    options = {"log": Log(console=False), "best": Best(metric="episode_return")}
    ppax.fit(agent, ppax.make("CueCorridor-10", 4), 256, num_steps=16, run_dir=run, **options)
    capsys.readouterr()
    assert cli.main(["play", str(run), "--episodes", "2", "--json", "--no-cache"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["lengths"] == [11, 11]
    assert out["frames"] == 24
    with Image.open(run / "play.gif") as film:
        assert film.n_frames > 1
    assert cli.main(["play", str(run), "--best", "--output", str(tmp_path / "best.gif"), "--no-cache"]) == 0
    assert (tmp_path / "best.gif").exists()
    assert cli.main(["play", str(run), "--episodes", "0"]) == 2
    assert "--episodes = 0: must be at least 1" in capsys.readouterr().err
