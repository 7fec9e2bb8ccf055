"""`ppax.load` and `ppax.checkpoints`: the policy of a run directory, at any of its checkpoints."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import ppax
from ppax import config
from ppax.agents.self_play import Pool, SelfPlay
from ppax.cli.main import main
from ppax.config import BestSettings, Log
from ppax.core.types import ConfigError, part
from ppax.envs import VectorEnv, grouped
from ppax.networks import memories, network
from ppax.networks.heads import CategoricalHead
from ppax.policy.spec import spec_of
from ppax.ppo.losses import ClippedSurrogate
from ppax.ppo.minibatches import Shuffle
from ppax.run import checkpoint, python_objects
from ppax.run.directory import RunDirectory
from ppax.run.restore import state_shapes
from support.trained import env_of, random_learner
from support.worlds import Counter

pytestmark = pytest.mark.usefixtures("cached_programs", "quick_programs")
OBS = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)


def small(env, **options):
    return ppax.PPO(network(env, hidden=(4,)), minibatch=Shuffle(1), num_epochs=1, learning_rate=0.05, **options)


def train(path, agent=None, env=None, iterations=8, **options):
    env = ppax.make("CartPole-v1", 4) if env is None else env
    agent = small(env, normalize_obs=True) if agent is None else agent
    log = options.pop("log", Log(every=1, console=False))
    steps = iterations * 32 * env.num_streams
    return ppax.fit(agent, env, steps, run_dir=path, num_steps=32, log=log, **options)


def untrained(path, agent, env):
    """The directory of a run that ended before its first iteration; its learner. Compiles nothing."""
    run = config.Run(
        **env.settings.run_fields() | {"num_steps": 32, "agents": agent.sharing}, self_play=agent.pool or Pool()
    )
    shapes, learner = state_shapes(agent, env, run), random_learner(agent, env)
    state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), dataclasses.replace(shapes, learner=(), key=()))
    state = dataclasses.replace(state, learner=learner, key=jax.random.key(0))
    settings = config.describe_run(agent, env, run)
    objects = python_objects.objects(agent, env, settings)
    settings |= {config.OBJECTS: objects} if objects else {}
    policy = spec_of(agent, env, shapes.actor.action_mask, {}).to_data()
    with RunDirectory.create(path, settings, policy) as directory:
        checkpoint.save(directory.checkpoints, state)
    return learner


def assert_same(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with a checkpoint every 2 iterations, all of which are kept, and the best policy."""
    path = tmp_path_factory.mktemp("runs") / "one"
    log = Log(every=3, checkpoint_every=2, keep=None, console=False)
    return train(path, log=log, best=BestSettings("episode_return"))


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run, to be changed."""
    shutil.copytree(trained.run_dir, tmp_path / "run")
    return tmp_path / "run"


def params_of(path):
    """Parameters in the file of a checkpoint, without ppax."""
    arrays = safetensors.numpy.load((path / "state.safetensors").read_bytes())
    return {name.removeprefix("learner.params."): x for name, x in arrays.items() if ".params." in name}


def assert_params(policy, path):
    leaves, _ = jax.tree_util.tree_flatten_with_path(policy.learner.params)
    own = {jax.tree_util.keystr(place, simple=True, separator="."): x for place, x in leaves}
    saved = params_of(path)
    assert own.keys() == saved.keys()
    for name, x in own.items():
        np.testing.assert_array_equal(x, saved[name])


def test_a_loaded_policy_is_the_trained_one(trained):
    loaded, own = ppax.load(trained.run_dir), trained.policy()
    np.testing.assert_array_equal(loaded.act(OBS), own.act(OBS))
    forward = trained.agent.policy(trained.state.learner, (), OBS, np.ones(50, bool), None)
    np.testing.assert_array_equal(loaded.act(OBS), forward.distribution.mode())
    mine, theirs = loaded.evaluate(trained.env, episodes=8), trained.evaluate(episodes=8)
    np.testing.assert_array_equal(mine.returns, theirs.returns)
    assert (loaded.spec, own.spec.config) == (own.spec, config.read(trained.run_dir / "run.toml"))


def test_checkpoints_have_steps_and_scores(trained):
    saved = ppax.checkpoints(trained.run_dir)
    rows = {row["iteration"]: row for row in trained.history}
    assert [one.iteration for one in saved if not one.best] == [2, 4, 6, 8]
    assert sorted(rows) == [2, 3, 4, 6, 8]  # log rows every 3 iterations, and with each checkpoint
    for one in saved:
        assert one.step == rows[one.iteration]["env_steps"]
        assert one.score == pytest.approx(rows[one.iteration]["episode_return"], nan_ok=True)
        assert one.metric == "episode_return"
    (best,) = [one for one in saved if one.best]
    assert best.score == max(row["episode_return"] for row in rows.values() if not np.isnan(row["episode_return"]))
    assert str(ppax.checkpoints(trained)) == str(saved)
    assert f"step {best.step:,}" in repr(best)


def test_every_checkpoint_can_be_loaded_by_its_step(trained):
    for one in ppax.checkpoints(trained.run_dir):
        assert_params(ppax.load(trained.run_dir, step=one.step), one.path)


def test_the_best_policy_is_loaded_or_missed_by_name(trained, tmp_path):
    (best,) = [one for one in ppax.checkpoints(trained.run_dir) if one.best]
    assert_params(ppax.load(trained.run_dir, best=True), best.path)
    np.testing.assert_array_equal(trained.policy(best=True).act(OBS), ppax.load(trained.run_dir, best=True).act(OBS))
    other = train(tmp_path / "other", iterations=1)
    with pytest.raises(ConfigError, match=r"no best policy: train with --best\.metric"):
        ppax.load(tmp_path / "other", best=True)
    with pytest.raises(ConfigError, match="kept no best policy"):
        other.policy(best=True)


def test_wrong_arguments_are_refused_with_the_nearest(trained, tmp_path):
    steps = [one.step for one in ppax.checkpoints(trained.run_dir)]
    with pytest.raises(ConfigError, match=f"no checkpoint of this step; nearest valid value: {steps[0]}"):
        ppax.load(trained.run_dir, step=1)
    with pytest.raises(ConfigError, match="choose one of them"):
        ppax.load(trained.run_dir, best=True, step=steps[0])
    with pytest.raises(ConfigError, match="must be a run directory"):
        ppax.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not a run directory"):
        ppax.load(tmp_path)
    with pytest.raises(ConfigError, match="it has no directory"):
        ppax.checkpoints(dataclasses.replace(trained, run_dir=None))


@pytest.mark.parametrize(("keep", "kept"), [(1, [6]), (2, [5, 6]), (None, [1, 2, 3, 4, 5, 6]), (3, [4, 5, 6])])
def test_the_newest_checkpoints_are_kept(tmp_path, keep, kept):
    train(tmp_path, iterations=6, log=Log(every=1, checkpoint_seconds=0.0, keep=keep, console=False))
    assert [one.iteration for one in ppax.checkpoints(tmp_path)] == kept


def test_the_options_are_read_from_text():
    for text in ("all", "none"):
        assert config.resolve({"log": {"keep": text}})["log"]["keep"] is None
    assert 'keep = "all"' in config.to_toml(config.resolve({"log": {"keep": "all"}}))
    assert config.resolve({"log": {"keep": 5, "checkpoint_every": 7}})["log"] == {
        **config.resolve({})["log"],
        "keep": 5,
        "checkpoint_every": 7,
    }
    for name in ("keep", "checkpoint_every"):
        with pytest.raises(ConfigError, match=f"log.{name} = 0: must be at least 1; nearest valid value: 1"):
            config.resolve({"log": {name: 0}})


def test_the_options_act_from_the_command_line(tmp_path, capsys):
    steps = [
        "--total-steps",
        str(4 * 32 * 4),
        "--num-envs",
        "4",
        "--num-steps",
        "32",
        "--agent.minibatch.num-minibatches",
        "1",
    ]
    log = ["--log.every", "4", "--log.checkpoint-every", "1", "--log.keep", "all", "--no-log.console"]
    more = ["--agent.network.hidden", "4", "--eval.episodes", "1", "--run-dir", str(tmp_path / "run")]
    assert main(["train", "CartPole-v1", *steps, *log, *more]) == 0
    assert [one.iteration for one in ppax.checkpoints(tmp_path / "run")] == [1, 2, 3, 4]


def test_the_commands_take_a_step(trained, capsys):
    path, saved = str(trained.run_dir), [one for one in ppax.checkpoints(trained) if not one.best]
    reached = []
    for one in saved[:2]:
        assert main(["evaluate", path, "--step", str(one.step), "--episodes", "4", "--json"]) == 0
        reached.append(json.loads(capsys.readouterr().out)["env_steps"])
    assert reached == [one.step for one in saved[:2]]
    assert main(["evaluate", path, "--step", "1"]) == 2
    assert f"nearest valid value: {saved[0].step}" in capsys.readouterr().err
    assert main(["evaluate", path, "--step", "1", "--best"]) == 2
    assert main(["play", path, "--step", "1", "--out", str(trained.run_dir.parent / "x.gif")]) == 2


def test_the_environment_is_not_needed(run, monkeypatch):
    """As on a machine without the library of the environment."""

    def missing(*_, **__):
        raise ImportError("the library of this environment is not installed")

    wanted = ppax.load(run).act(OBS)
    monkeypatch.setattr(config, "build_env", missing)
    np.testing.assert_array_equal(ppax.load(run).act(OBS), wanted)
    (run / "policy.json").unlink()
    with pytest.raises(ConfigError, match=r"policy\.json is missing"):
        ppax.load(run)
    np.testing.assert_array_equal(ppax.load(run, env=ppax.make("CartPole-v1", 2)).act(OBS), wanted)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", '{"format": 1}', "[" * 100_000, '{"format": 1, "observation_space": {"space": "os"}}'],
)
def test_a_damaged_specification_is_refused_with_its_name(run, text):
    (run / "policy.json").write_text(text)
    with pytest.raises(ConfigError, match=r"policy\.json"):
        ppax.load(run)


@pytest.mark.parametrize(
    "change",
    [
        {"num_agents": 0},
        {"num_agents": 2**40},
        {"num_agents": "many"},
        {"names": ["a", "b"]},
        {"sharing": "stolen"},
        {"sizes": [["prey", 1]]},
        {"sizes": [["prey", 2**40]], "num_agents": 2**40},
        {"sizes": 3},
        {"memory": [1]},
        {"memory": {"a": {"shape": "x", "dtype": "float32"}}},
    ],
)
def test_contradictions_in_a_specification_are_refused(run, change):
    data = json.loads((run / "policy.json").read_text()) | change
    (run / "policy.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=r"policy\.json: (agents|not the spec)"):
        ppax.load(run)


def test_a_specification_of_other_spaces_does_not_fit_the_weights(run):
    data = json.loads((run / "policy.json").read_text())
    data["observation_space"]["shape"] = [5]
    data["observation_space"] |= {"low": -1.0, "high": 1.0}
    (run / "policy.json").write_text(json.dumps(data))
    with pytest.raises(checkpoint.CheckpointError, match=r"params.actor.*\(4, 4\), expected float32\(5, 4\)"):
        ppax.load(run)


def test_links_in_the_directory_are_refused(run, tmp_path):
    secret = tmp_path / "secret.json"
    (run / "policy.json").rename(secret)
    (run / "policy.json").symlink_to(secret)
    with pytest.raises(ConfigError, match="links"):
        ppax.load(run)


def test_a_damaged_checkpoint_is_skipped_with_a_warning(run):
    saved = [one for one in ppax.checkpoints(run) if not one.best]
    state = saved[-1].path / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    with pytest.warns(UserWarning, match="skipped a damaged checkpoint"):
        assert_params(ppax.load(run), saved[-2].path)
    with pytest.raises(checkpoint.DamagedCheckpoint):
        ppax.load(run, step=saved[-1].step)


def test_weights_that_are_not_finite_are_refused(run):
    agent, env = small(ppax.make("CartPole-v1", 4)), ppax.make("CartPole-v1", 4)
    shutil.rmtree(run / "checkpoints")
    state = ppax.start(small(env, normalize_obs=True), env, 32, jax.random.key(0))
    params = jax.tree.map(lambda x: x * np.nan, state.learner.params)
    broken = dataclasses.replace(state, learner=state.learner._replace(params=params))
    checkpoint.save(run / "checkpoints", broken)
    with pytest.warns(UserWarning, match="not finite: params"), pytest.raises(checkpoint.CheckpointError):
        ppax.load(run, agent=dataclasses.replace(agent, normalize_obs=True))


@part
class OwnHead(CategoricalHead):
    """Head of a user."""


@part
class OwnLoss(ClippedSurrogate):
    """Loss of a user."""


def with_head(agent):
    return dataclasses.replace(agent, network=dataclasses.replace(agent.network, head=OwnHead(2)))


def test_a_run_made_from_objects_says_which_to_pass(tmp_path):
    """Own parts that act are named, own parts that only learn and own environments are not needed."""
    env = ppax.make("CartPole-v1", 4)
    untrained(tmp_path / "loss", small(env, loss=OwnLoss()), env)
    assert ppax.load(tmp_path / "loss").act(OBS[0]) in (0, 1)
    agent = with_head(small(env))
    learner = untrained(tmp_path / "head", agent, env)
    with pytest.raises(ConfigError, match=r"agent\.network\.head \(OwnHead\).*ppax\.load\('.*head', agent=agent\)"):
        ppax.load(tmp_path / "head")
    assert_same(ppax.load(tmp_path / "head", agent=agent).learner.params, learner.params)
    own = VectorEnv(Counter(), 4)
    untrained(tmp_path / "env", small(own), own)
    assert ppax.load(tmp_path / "env").act(np.zeros(2)) in (0, 1)
    for command in (["evaluate"], ["play"]):
        assert main([*command, str(tmp_path / "head")]) == 2


def test_an_agent_that_does_not_fit_is_refused(trained):
    env = ppax.make("CartPole-v1", 4)
    with pytest.raises(checkpoint.CheckpointError, match="does not fit this agent"):
        ppax.load(trained.run_dir, agent=ppax.PPO(network(env, hidden=(5,)), normalize_obs=True))
    with pytest.raises(checkpoint.CheckpointError, match="obs_stats"):
        ppax.load(trained.run_dir, agent=small(env))


def many_agents(kind):
    if kind == "independent":
        env = ppax.make("Pursuit-2", 4)
        return ppax.Independent(small(env, normalize_obs=True), 2), env
    env = grouped(ppax.make("Pursuit-2", 4), {"prey": [0], "hunter": [1]})
    groups = ppax.Groups({name: small(group) for name, group in env.groups.items()}, env.sizes)
    return (groups if kind == "groups" else SelfPlay(groups, Pool(every=1, opponents=1, share=0.5), 4)), env


def test_the_user_s_environment_stays_open(run):
    with ppax.make("gymnasium/CartPole-v1", 2) as env:
        env.host.reset([0, 1])
        assert ppax.load(run, env=env).act(OBS[0]) in (0, 1)
        assert env.host.position == 1


def test_groups_may_have_the_names_of_fields_of_a_learner(tmp_path):
    env = grouped(ppax.make("Pursuit-2", 4), {"control": [0], "current": [1]})
    groups = ppax.Groups({name: small(group) for name, group in env.groups.items()}, env.sizes)
    learner = untrained(tmp_path / "run", groups, env)
    loaded = ppax.load(tmp_path / "run").learner
    for name in ("control", "current"):
        assert_same(loaded[name].params, learner[name].params)


@pytest.mark.parametrize("kind", ["independent", "groups", "self-play"])
def test_policies_of_many_agents_are_loaded(tmp_path, kind):
    agent, env = many_agents(kind)
    learner = untrained(tmp_path / "run", agent, env)
    current = learner.current if kind == "self-play" else learner
    loaded = ppax.load(tmp_path / "run")
    for group, own in loaded.learner.items() if isinstance(current, dict) else [("", loaded.learner)]:
        saved = current[group] if group else current
        assert_same((own.params, own.obs_stats), (saved.params, saved.obs_stats))
    assert loaded.spec.sizes == env.sizes
    assert loaded.agent.sharing == agent.sharing


def test_memory_masks_and_spaces_are_in_the_specification(tmp_path):
    env = env_of("nested", "dict", masked=True)
    agent = ppax.PPO(network(env, hidden=(4,), memory=memories.LSTM(3)), minibatch=Shuffle(1), num_epochs=1)
    untrained(tmp_path / "run", agent, env)
    spec = ppax.load(tmp_path / "run").spec
    assert spec.masked
    assert {shape.shape for shape in spec.memory.values()} == {(3,)}
    assert spec.observation_space == env.observation_space
    assert spec.action_space == env.action_space
    assert ppax.PolicySpec.from_data(json.loads(json.dumps(spec.to_data()))) == spec


def test_a_policy_keeps_only_what_acting_needs():
    env = env_of()
    agent = ppax.PPO(network(env, hidden=(4,)), critic=ppax.critics.PopArt(), normalize_reward=True)
    learner = random_learner(agent, env)
    policy = ppax.Policy(agent, learner, spec_of(agent, env, None, {}))
    kept = policy.learner
    assert (kept.opt_state, kept.reward_stats, kept.extensions) == ((), None, {})
    assert jax.tree.structure(kept.critic) == jax.tree.structure(learner.critic)
    assert all(type(x) is np.ndarray for x in jax.tree.leaves(kept))
