"""Learner of another run: which checkpoint is read, and what is refused."""

import dataclasses
import json
import os
import pickle
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.config import Log, Run
from ppax.networks import mlp
from ppax.run import checkpoint, warm_start
from ppax.run.conditions import policy_of
from ppax.run.directory import RunDirectory
from ppax.run.warm_start import read_learner, settings_and_object

ENV = ppax.make("CartPole-v1", 4)
AGENT = ppax.PPO(mlp(ENV, (4,)), normalize_obs=True)
BIAS = "params.policy.bias"


@pytest.fixture(scope="module")
def state():
    with jax.debug_key_reuse(False):
        return ppax.start(AGENT, ENV, 8, jax.random.key(0))


def with_bias(state, value, iteration):
    policy = state.learner.params["policy"] | {"bias": jnp.full(2, value, jnp.float32)}
    learner = state.learner._replace(params=state.learner.params | {"policy": policy})
    return dataclasses.replace(state, learner=learner, iteration=jnp.int32(iteration))


@pytest.fixture
def run(state, tmp_path):
    """Run directory with two checkpoints, whose policies have biases 1 and 2, and a best policy with bias 7."""
    settings = Run(**ENV.settings.run_fields(), num_steps=8, log=Log(console=False))
    path = tmp_path / "run"
    with RunDirectory.create(path, config.describe_run(AGENT, ENV, settings), {}):
        pass
    origin = {"run": json.loads((path / "about.json").read_text())["id"]}
    for iteration in (1, 2):
        checkpoint.save(path / "checkpoints", with_bias(state, iteration, iteration), origin=origin)
    checkpoint.save(path / "best", policy_of(with_bias(state, 7.0, 1)), origin=origin)
    return path


def learner_of(path, **changes):
    return read_learner(*settings_and_object(ppax.InitFrom(path, **changes)))


def test_the_newest_checkpoint_is_read(run, state):
    found = learner_of(run)
    np.testing.assert_array_equal(found.arrays[BIAS], [2.0, 2.0])
    assert (found.name, found.iteration) == (str(run), 2)
    assert found.run_id == json.loads((run / "about.json").read_text())["id"]
    assert not [name for name in found.arrays if name.startswith(("actor", "learner", "key"))]
    expected = {name.removeprefix("learner.") for name in names(state) if name.startswith("learner.")}
    assert set(found.arrays) == expected


def names(state):
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves}


def test_the_best_policy_is_read(run):
    np.testing.assert_array_equal(learner_of(run, best=True).arrays[BIAS], [7.0, 7.0])


def test_without_a_best_policy_best_is_refused(run):
    shutil.rmtree(run / "best")
    with pytest.raises(ppax.ConfigError, match=r"init_from\.best: .*has no best policy: train it with --best\.metric"):
        learner_of(run, best=True)


def test_a_damaged_checkpoint_is_passed_over(run):
    os.truncate(run / "checkpoints" / "0000000002" / "state.safetensors", 100)
    with pytest.warns(UserWarning, match="skipped a damaged checkpoint"):
        np.testing.assert_array_equal(learner_of(run).arrays[BIAS], [1.0, 1.0])


@pytest.mark.filterwarnings("ignore:skipped")
@pytest.mark.parametrize("folder", ["checkpoints", "best"])
def test_without_an_intact_checkpoint_it_is_an_error_of_checkpoints(run, folder):
    for path in checkpoint.list_checkpoints(run / folder):
        (path / "manifest.json").unlink()
    with pytest.raises(ppax.CheckpointError, match="has no checkpoint that can be loaded"):
        learner_of(run, best=folder == "best")


def test_a_learner_that_is_not_finite_is_passed_over(run, state):
    checkpoint.save(run / "checkpoints", with_bias(state, np.nan, 3))
    with pytest.warns(UserWarning, match=r"is not finite: params\.policy\.bias"):
        assert learner_of(run).iteration == 2


def test_a_checkpoint_of_another_run_is_passed_over(run, state):
    checkpoint.save(run / "checkpoints", with_bias(state, 5.0, 3), origin={"run": "another"})
    with pytest.warns(UserWarning, match="is of another run"):
        assert learner_of(run).iteration == 2


def test_a_directory_with_a_link_is_refused(run, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (run / "metrics.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(ppax.ConfigError, match=r"init_from\.run = '.*': .*contains links .*metrics\.jsonl"):
        learner_of(run)


def test_a_tilde_is_the_home_directory(run, monkeypatch):
    monkeypatch.setenv("HOME", str(run.parent))
    np.testing.assert_array_equal(learner_of("~/run").arrays[BIAS], [2.0, 2.0])


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(ppax.ConfigError, match=r"init_from\.run = '.*none': .*is not a run directory"):
        learner_of(tmp_path / "none")


def test_code_in_a_checkpoint_is_not_executed(run, tmp_path):
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    for path in checkpoint.list_checkpoints(run / "checkpoints"):
        (path / "state.safetensors").write_bytes(pickle.dumps(Harmful()))
    with pytest.warns(UserWarning, match="skipped"), pytest.raises(ppax.CheckpointError):
        learner_of(run)
    assert not (tmp_path / "harm").exists()


def test_a_state_larger_than_the_memory_is_not_read(run, monkeypatch):
    monkeypatch.setattr(warm_start, "available_bytes", lambda: 100)
    with pytest.raises(ppax.CheckpointError, match="at most 100"):
        learner_of(run)


def test_a_state_in_memory_is_a_source(state):
    found = learner_of(with_bias(state, 3.0, 4))
    np.testing.assert_array_equal(found.arrays[BIAS], [3.0, 3.0])
    assert (found.name, found.iteration) == ("TrainState", 4)
    with pytest.raises(ppax.ConfigError, match="TrainState has no best policy"):
        learner_of(state, best=True)


def test_a_trained_run_is_a_source_and_recorded_by_its_directory(run, state):
    best = ppax.stop.KeepBest("episode_return")
    best.keep(policy_of(with_bias(state, 9.0, 1)), {"episode_return": 1.0}, 1.0)
    trained = ppax.TrainedRun(AGENT, ENV, with_bias(state, 3.0, 4), [], run, best=best)
    settings, given = settings_and_object(trained)
    assert settings == ppax.InitFrom(str(run))
    np.testing.assert_array_equal(read_learner(settings, given).arrays[BIAS], [3.0, 3.0])
    np.testing.assert_array_equal(learner_of(trained, best=True).arrays[BIAS], [9.0, 9.0])
    in_memory = dataclasses.replace(trained, run_dir=None, best=None)
    assert settings_and_object(ppax.InitFrom(in_memory)) == (ppax.InitFrom(), in_memory)
    with pytest.raises(ppax.ConfigError, match="TrainedRun has no best policy"):
        learner_of(in_memory, best=True)


@pytest.mark.usefixtures("vmapped_keys")
def test_states_of_a_sweep_are_refused_and_one_member_is_a_source(state):
    states = jax.tree.map(lambda x: jnp.stack([x, x]), with_bias(state, 3.0, 4))
    with pytest.raises(ppax.ConfigError, match=r"2 members of a sweep.*jax\.tree\.map"):
        learner_of(states)
    member = jax.tree.map(lambda x: x[1], states)
    np.testing.assert_array_equal(learner_of(member).arrays[BIAS], [3.0, 3.0])


def test_other_objects_are_refused(state):
    with pytest.raises(ppax.ConfigError, match=r"a run directory, a TrainedRun or a TrainState, .*not a dict"):
        settings_and_object(state.learner.params)
    with pytest.raises(ppax.ConfigError, match=r"learner of TrainState is not finite: params\.policy\.bias"):
        learner_of(with_bias(state, np.inf, 1))
