"""`ppax.film`: videos of runs, run directories and policies."""

import numpy as np
import pytest
from PIL import Image

import ppax
from ppax.cli.main import main
from ppax.config import BestSettings, EvalSettings, FilmSettings, Log
from ppax.core.types import part
from ppax.envs import TimeLimit, VectorEnv, builtin, grouped, host
from ppax.networks import mlp, network
from support.host_worlds import DrawnMaze
from support.trained import policy_of, random_learner

ENV = VectorEnv(TimeLimit(builtin.CartPole(), 6), 4)


def frames_of(path):
    """Number of pictures in a GIF, which leaves out those that are as the one before, and the whole time shown."""
    with Image.open(path) as video:
        times = []
        for i in range(video.n_frames):
            video.seek(i)
            times.append(video.info["duration"])
        return sum(times)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    env = ppax.make("CartPole-v1", 4, env_params={"max_steps": 6})
    agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1))
    options = {"log": Log(console=False), "best": BestSettings(metric="episode_return")}
    return ppax.fit(agent, env, 64, num_steps=8, run_dir=tmp_path_factory.mktemp("runs") / "run", **options)


def test_a_run_a_directory_and_a_policy_make_the_same_film(run, tmp_path):
    """No pole falls in six steps: an episode has seven states."""
    env = ppax.make("CartPole-v1", 2, env_params={"max_steps": 6})
    films = [
        ppax.film(run, tmp_path / "a.gif", episodes=2, fps=20),
        ppax.film(str(run.run_dir), str(tmp_path / "b.gif"), episodes=2, fps=20),
        ppax.film(ppax.load(run.run_dir), tmp_path / "c.gif", env, episodes=2, fps=20),
    ]
    for film in films:
        assert (film.frames, film.lengths.tolist(), film.returns.tolist()) == (14, [6, 6], [[6.0], [6.0]])
        assert film.finished
        assert frames_of(film.path) == 14 * 50
        assert film.path.read_bytes() == films[0].path.read_bytes()
    assert ppax.film(run, tmp_path / "d.gif", seed=1).path.read_bytes() != films[0].path.read_bytes()


def test_the_command_play_is_the_same_film(run, tmp_path, capsys):
    film = ppax.film(run, tmp_path / "a.gif", deterministic=False, max_steps=4)
    assert not film.finished
    words = ["--sampled", "--max-steps", "4", "--out", str(tmp_path / "b.gif"), "--no-cache"]
    assert main(["play", str(run.run_dir), *words]) == 0
    assert (tmp_path / "b.gif").read_bytes() == film.path.read_bytes()


def test_the_best_policy_and_another_environment_are_played(run, tmp_path):
    best = ppax.film(run, tmp_path / "a.gif", best=True)
    assert ppax.film(run.run_dir, tmp_path / "b.gif", best=True).path.read_bytes() == best.path.read_bytes()
    other = ppax.make("CartPole-v1", 2, env_params={"max_steps": 3})
    assert ppax.film(run, tmp_path / "c.gif", other).lengths.tolist() == [3]
    assert ppax.film(run.run_dir, tmp_path / "d.gif", other).lengths.tolist() == [3]


def test_films_show_the_environment_of_evaluations(tmp_path):
    """`[eval.env_params]` hold for films as for evaluations; parameters of the call have priority over them."""
    env = ppax.make("CartPole-v1", 4, env_params={"max_steps": 6})
    agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1))
    options = {"log": Log(console=False), "film": FilmSettings(every=1), "run_dir": tmp_path / "run"}
    run = ppax.fit(agent, env, 32, num_steps=8, evaluation=EvalSettings(env_params={"max_steps": 3}), **options)
    assert ppax.film(run, tmp_path / "a.gif").lengths.tolist() == [3]
    assert ppax.film(run.run_dir, tmp_path / "b.gif").lengths.tolist() == [3]
    assert frames_of(run.run_dir / "films" / "0000000001.gif") < 5 * 40
    assert ppax.film(run, tmp_path / "c.gif", env_params={"max_steps": 2}).lengths.tolist() == [2]
    assert ppax.film(ppax.load(run.run_dir), tmp_path / "d.gif", env, env_params={"max_steps": 2}).lengths == [2]
    words = ["--env-params.max-steps", "2", "--out", str(tmp_path / "e.gif"), "--no-cache"]
    assert main(["play", str(run.run_dir), *words]) == 0
    assert (tmp_path / "e.gif").read_bytes() == (tmp_path / "c.gif").read_bytes()
    assert run.evaluate(episodes=2, env_params={"max_steps": 2}).lengths.tolist() == [2, 2]
    assert run.evaluate(episodes=2).lengths.tolist() == [3, 3]


@part
class Chase(builtin.Pursuit):
    agent_names = ("fox", "hound")


def test_a_policy_of_groups_is_filmed_in_the_environment_with_and_without_its_groups(tmp_path):
    """The groups order the agents otherwise than the environment does."""
    env = VectorEnv(TimeLimit(Chase(), 4), 1, name="Chase")
    split = grouped(env, {"hunter": [1], "prey": [0]})
    agents = ppax.Groups({name: ppax.PPO(network(one, hidden=(4,))) for name, one in split.groups.items()}, split.sizes)
    policy = policy_of(agents, split, random_learner(agents, split))
    films = [ppax.film(policy, tmp_path / f"{i}.gif", one) for i, one in enumerate((split, env))]
    assert films[0].names == films[1].names == ("hound", "fox")
    np.testing.assert_array_equal(films[0].returns, films[1].returns)
    assert films[0].path.read_bytes() == films[1].path.read_bytes()
    other = grouped(env, {"a": [0], "b": [1]})
    with pytest.raises(ppax.ConfigError, match="Groups has sizes"):
        ppax.film(policy, tmp_path / "x.gif", other)
    with pytest.raises(
        ppax.ConfigError, match="the policy has learned to play hound, fox apart; Pursuit-3 has agent_0"
    ):
        ppax.film(policy, tmp_path / "x.gif", ppax.make("Pursuit-3", 1))


def test_a_host_environment_is_made_with_a_render_mode(tmp_path):
    with host(DrawnMaze, 2) as env:
        agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1))
        run = ppax.fit(agent, env, 32, num_steps=16, log=Log(console=False))
        film = ppax.film(run, tmp_path / "a.gif")
    assert film.frames == film.lengths[0] + 1
    assert np.isfinite(film.returns).all()


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        ("run", {"path": "x.avi"}, r"as \.gif or \.mp4"),
        ("run", {"path": "nodir/x.gif"}, "there is no directory nodir"),
        ("run", {"path": 3}, "path = 3: must be a path"),
        ("run", {"episodes": 0}, "episodes = 0: must be at least 1"),
        ("run", {"max_steps": 0}, "max_steps = 0: must be at least 1"),
        ("run", {"fps": 0}, "fps = 0.0: must be at least 1"),
        ("run", {"step": 3}, "step = 3: pass the run directory"),
        ("policy", {}, "env: a policy has no environment: pass one"),
        ("policy", {"best": True}, "best = True: a policy is one of its run already"),
        ("agent", {}, "source: a PPO; must be a run, a run directory or a policy"),
        ("runs/none", {}, "runs/none is not a run directory"),
    ],
)
def test_what_cannot_be_filmed_is_refused_and_nothing_written(source, changes, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = {"run": run, "agent": run.agent}
    given = run.policy() if source == "policy" else sources.get(source, source)
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.film(given, **({"path": "x.gif"} | changes))
    assert list(tmp_path.iterdir()) == []


def test_a_policy_of_other_spaces_is_refused(run, tmp_path):
    with pytest.raises(ppax.ConfigError, match="observation"):
        ppax.film(run.policy(), tmp_path / "x.gif", ppax.make("Pendulum-v1", 2))
