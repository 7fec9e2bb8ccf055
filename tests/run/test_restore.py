"""Another length of a run: it goes on as documented, bit for bit, and records what was changed."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.config import Log
from ppax.devices.platforms import rules
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.schedules import Constant, Linear, Steps

pytestmark = pytest.mark.usefixtures("quick_programs", "shared_programs")

NUM_ENVS, NUM_STEPS = 4, 8
ROLLOUT = NUM_ENVS * NUM_STEPS
ENV = ppax.make("CartPole-v1", NUM_ENVS)
AGENT = ppax.PPO(mlp(ENV, (4,)), num_epochs=1, minibatch=Shuffle(1), learning_rate=0.01)
ANNEALED = ppax.PPO(mlp(ENV, (4,)), num_epochs=1, minibatch=Shuffle(1), learning_rate=0.01, schedule=Linear())
TIMES = ("seconds", "steps_per_second", "iteration_ms", "compile_seconds", "memory_mb")


def fit(agent, iterations, run_dir, **changes):
    log = Log(every=1, checkpoint_seconds=0.0, console=False)
    arguments = {"num_steps": NUM_STEPS, "log": log, "run_dir": run_dir} | changes
    return ppax.fit(agent, ENV, iterations * ROLLOUT, **arguments)


def assert_same(one, other):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), jax.tree_util.keystr(path)


def rows_of(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: x for name, x in row.items() if name not in TIMES} for row in rows]


BY_STEPS = Steps(at=(0.0, 500.0), values=(0.01, 0.002), leaves=("learning_rate",), by="env_steps")


@pytest.mark.parametrize("schedule", [Constant(), pytest.param(BY_STEPS, marks=pytest.mark.nightly)])
def test_a_finished_run_that_is_extended_equals_a_longer_one_bit_for_bit(tmp_path, schedule):
    agent = dataclasses.replace(AGENT, schedule=schedule)
    whole = fit(agent, 20, tmp_path / "whole")
    assert int(fit(agent, 10, tmp_path / "run").state.iteration) == 10
    longer = ppax.resume(tmp_path / "run", total_steps=20 * ROLLOUT, console=False)
    assert int(longer.state.iteration) == 20
    assert_same(whole.state, longer.state)
    assert rows_of(tmp_path / "run") == rows_of(tmp_path / "whole")
    assert config.read(tmp_path / "run" / "run.toml") == config.read(tmp_path / "whole" / "run.toml")
    starts = json.loads((tmp_path / "run" / "about.json").read_text())["starts"]
    assert starts[1]["total_steps"] == {"before": 10 * ROLLOUT, "after": 20 * ROLLOUT}
    assert json.loads((tmp_path / "run" / "stopped.json").read_text())["iteration"] == 20
    # the new length is that of the run from now on
    assert ppax.resume(tmp_path / "run", console=False).history == []


def test_schedules_take_their_progress_from_the_new_length(tmp_path):
    short = fit(ANNEALED, 4, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with pytest.warns(UserWarning, match=r"from 100% to 50%, .*: learning_rate from 0 to 0\.005"):
        longer = ppax.resume(tmp_path / "run", total_steps=8 * ROLLOUT, console=False)
    rates = [row["learning_rate"] for row in rows_of(tmp_path / "run")]
    np.testing.assert_allclose(rates[:4], 0.01 * (1.0 - np.arange(4) / 4), rtol=1e-6)
    np.testing.assert_allclose(rates[4:], 0.01 * (1.0 - np.arange(4, 8) / 8), rtol=1e-6)
    # the same by pure functions: four iterations of a run of eight, from the state of the short one
    train = jax.jit(ppax.train, compiler_options=rules().compiler_options)
    assert_same(train(ANNEALED, ENV, short.state, 4, 8).state, longer.state)


@pytest.mark.parametrize("edited", [False, True])
def test_a_curriculum_that_jumps_is_told(tmp_path, edited):
    """By an option of the command, and by an edit of the run file."""
    env = ppax.make("CartPole-v1", num_envs=ENV.num_envs, schedule=Linear(("env.gravity",), end=30.0))
    ppax.fit(
        AGENT,
        env,
        4 * ROLLOUT,
        run_dir=tmp_path / "run",
        num_steps=ROLLOUT // ENV.num_envs,
        log=ppax.Log(console=False),
    )
    file = tmp_path / "run" / "run.toml"
    if edited:
        config_before = config.read(file)
        file.write_text(config.to_toml(config_before | {"total_steps": 8 * ROLLOUT}))
    with pytest.warns(UserWarning, match=r"progress goes from 100% to 50%, .*: env.gravity from 294 to 151.9"):
        ppax.resume(tmp_path / "run", total_steps=None if edited else 8 * ROLLOUT, console=False)


def test_an_unfinished_run_can_be_shortened(tmp_path):
    fit(AGENT, 10, tmp_path / "run", callbacks=[lambda state, row: row["iteration"] == 4])
    assert int(ppax.resume(tmp_path / "run", total_steps=6 * ROLLOUT, console=False).state.iteration) == 6
    assert config.read(tmp_path / "run" / "run.toml")["total_steps"] == 6 * ROLLOUT


@pytest.mark.parametrize(
    ("total", "text"),
    [
        (3 * ROLLOUT, rf"total_steps = {3 * ROLLOUT}: {4 * ROLLOUT} are done already; nearest .*: {4 * ROLLOUT}"),
        (0, "total_steps = 0: must be at least 1"),
        (1.5, "total_steps = 1.5: must be of type int"),
        (ROLLOUT * 2**31, "2\\^31 - 1 rollouts"),
    ],
)
def test_lengths_that_are_impossible_are_refused_and_nothing_is_changed(finished, total, text):
    before = {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()}
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.resume(finished, total_steps=total, console=False)
    assert {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()} == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    fit(AGENT, 4, path)
    return path


def test_a_stop_condition_that_was_met_still_ends_a_longer_run(tmp_path):
    stopped = fit(AGENT, 10, tmp_path / "run", stop="iteration >= 3")
    again = ppax.resume(tmp_path / "run", total_steps=20 * ROLLOUT, console=False)
    assert again.history == []
    assert "iteration" in again.stopped
    assert_same(stopped.state, again.state)
