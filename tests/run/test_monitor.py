"""Stop conditions and the best policy of run files, also of runs that are stopped and resumed."""

import dataclasses
import json
import os
import shutil
import signal
import warnings

import jax
import numpy as np
import pytest

import ppax
from ppax import ConfigError
from ppax.cli import main
from ppax.config import BestSettings, Log
from ppax.core import imports
from ppax.networks import mlp
from ppax.run import checkpoint
from ppax.run.conditions import And, HitsUpperBound, KeepBest, Or, policy_of
from ppax.run.monitor import load_best
from ppax.run.restore import load_run, load_state, state_shapes
from ppax.storage import state_arrays

pytestmark = pytest.mark.usefixtures("shared_programs", "quick_programs")

ENV = ppax.make("CartPole-v1", 2)
AGENT = ppax.PPO(mlp(ENV, (4,)), num_epochs=1)
LOG = Log(every=1, checkpoint_seconds=0.0, console=False)


def fit(path, iterations=8, **changes):
    return ppax.fit(AGENT, ENV, iterations * 8, run_dir=path, num_steps=4, **{"log": LOG} | changes)


def ended(path):
    return json.loads((path / "stopped.json").read_text())


def stop_at(iteration):
    return lambda state, row: row["iteration"] >= iteration


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(one), jax.device_get(other))


def test_a_run_ends_by_the_stop_condition_of_its_run_file(tmp_path):
    run = fit(tmp_path / "run", stop="env_steps >= 1e9 or iteration >= 3 and valid_fraction >= 0")
    assert len(run.history) == int(run.state.iteration) == 3
    assert run.stopped == f"iteration >= 3 (at 3) and valid_fraction >= 0 (at {run.history[-1]['valid_fraction']:.6g})"
    expected = {"kind": "stopped", "why": run.stopped, "iteration": 3, "env_steps": run.env_steps}
    assert ended(tmp_path / "run") == expected
    # a resume trains nothing and keeps the reason
    again = ppax.resume(tmp_path / "run", console=False)
    assert (again.history, again.stopped) == ([], run.stopped)
    assert ended(tmp_path / "run") == expected
    # unless the condition in the run file is changed
    file = tmp_path / "run" / "run.toml"
    file.write_text(file.read_text().replace("iteration >= 3", "iteration >= 5"))
    assert int(ppax.resume(tmp_path / "run", console=False).state.iteration) == 5


def test_a_complete_run_is_recorded_as_done(tmp_path):
    run = fit(tmp_path / "run", 2, stop="iteration >= 100")
    assert run.stopped == ""
    assert (ended(tmp_path / "run")["kind"], ended(tmp_path / "run")["iteration"]) == ("done", 2)


@pytest.mark.parametrize("asked", ["callback", "signal"])
def test_stop_conditions_continue_after_a_resume(tmp_path, asked):
    """The iteration never falls: met at row 1 + 4, although the first process logged rows 1 to 3."""

    def kill(state, row):
        if row["iteration"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    path = tmp_path / "run"
    if asked == "callback":
        assert fit(path, stop="iteration stops falling for 4", callbacks=[stop_at(3)]).stopped == "callback <lambda>"
    else:
        with pytest.raises(ppax.Interrupted):
            fit(path, stop="iteration stops falling for 4", callbacks=[kill])
    assert ended(path)["kind"] == {"callback": "stopped", "signal": "signal"}[asked]
    seen = []
    run = ppax.resume(path, callbacks=[lambda state, row: seen.append((path / "stopped.json").exists())], console=False)
    assert int(run.state.iteration) == 5
    assert run.stopped == "iteration stops falling for 4 (at 5)"
    assert seen == [False, False]  # a running run has no stopped.json
    # rows beyond the checkpoint, of a process that was killed, are not replayed
    shutil.rmtree(path / "checkpoints" / "0000000005")
    assert len(ppax.resume(path, console=False).history) == 1


class LargeWeights:
    """Stop condition that reads the weights: met if they are large, at a row after that many rows."""

    metrics = ()

    def update(self, before, state, row):
        size = float(sum(np.abs(np.asarray(x)).sum() for x in jax.tree.leaves(state.learner.params)))
        return ppax.protocols.ConditionState(size > 0 and before.rows == 3, rows=before.rows + 1)


@pytest.mark.parametrize(
    ("stop", "last"),
    [
        (f"{__name__}:LargeWeights", 6),  # four rows of the second process
        (f"iteration stops falling for 4 or {__name__}:LargeWeights", 5),  # the other one goes on
        (f"iteration stops falling for 4 and {__name__}:LargeWeights", 6),
    ],
)
def test_conditions_of_the_users_own_start_anew_after_a_resume(tmp_path, stop, last):
    path = tmp_path / "run"
    with imports.trusting([__name__.partition(".")[0]]):
        fit(path, stop=stop, callbacks=[stop_at(2)])
        assert int(ppax.resume(path, console=False).state.iteration) == last


def pops(row):
    return row.pop("iteration")


class Pops(LargeWeights):
    def update(self, before, state, row):
        row.clear()
        return before


def test_callbacks_that_change_their_row_change_no_other_rows(tmp_path):
    callbacks = [lambda state, row: row.clear(), Pops(), Or(Pops(), HitsUpperBound("iteration", 2))]
    with imports.trusting([__name__.partition(".")[0]]):
        run = fit(tmp_path / "run", 3, callbacks=callbacks, best=BestSettings(f"{__name__}:pops"))
    assert [row["iteration"] for row in run.history] == [1, 2]
    assert run.best.row["iteration"] == 2
    assert (tmp_path / "run" / "metrics.csv").read_text().startswith("iteration,")


def test_a_numerical_fault_is_recorded(tmp_path):
    wild = dataclasses.replace(AGENT, learning_rate=1e30)
    with pytest.raises(ppax.NumericalError):
        ppax.fit(wild, ENV, 400, run_dir=tmp_path / "run", num_steps=4, log=LOG)
    assert ended(tmp_path / "run")["kind"] == "fault"


@pytest.mark.parametrize(
    "wrong",
    [
        {"stop": "episode_returns >= 1"},
        {"stop": "iteration >= 1 or (loss >= 1 and episode_returns plateaus)"},
        {"best": BestSettings("episode_returns")},
        {"callbacks": [And(HitsUpperBound("loss", 1.0), KeepBest("episode_returns"))]},
        {"callbacks": [KeepBest("episode_returns")]},
    ],
    ids=("stop", "stops", "best", "condition", "callback"),
)
def test_an_unknown_metric_is_refused_before_compilation(wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(ppax.training.backends, "compile", None)  # would fail
    with pytest.raises(ConfigError, match="no metric 'episode_returns' is logged; did you mean 'episode_return'"):
        fit(tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_every_logged_name_is_a_known_metric(tmp_path):
    names = fit(None, 1).history[0]
    run = fit(None, 1, callbacks=[HitsUpperBound(name, 1e30) for name in names])
    assert list(run.history[0]) == list(names)


def test_an_invalid_agent_leaves_no_directory(tmp_path):
    """A directory left behind would be refused by the corrected run."""
    agent = dataclasses.replace(AGENT, optimizer=ppax.optimizers.ActorCritic(actor_max_grad_norm=1.0))
    with pytest.raises(ConfigError, match="max_grad_norm"):
        ppax.fit(agent, ENV, 64, run_dir=tmp_path / "run", num_steps=4, log=LOG)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- the best policy


def on_disk(path):
    return [int(p.name) for p in checkpoint.list_checkpoints(path / "best")]


@pytest.mark.parametrize(("mode", "kept"), [("min", (1, 1)), ("max", (3, 6))])
def test_the_best_policy_is_saved_and_kept_over_a_resume(tmp_path, mode, kept):
    path = tmp_path / "run"
    first = fit(path, 6, best=BestSettings("iteration", mode), callbacks=[stop_at(3)])
    assert on_disk(path) == [kept[0]]
    assert first.best.row == first.history[kept[0] - 1]
    shutil.copytree(path, tmp_path / "early")
    run = ppax.resume(path, console=False)
    assert int(run.state.iteration) == 6
    assert on_disk(path) == [kept[1]]
    agent, env, plan = load_run(path)
    best = load_best(path, state_shapes(agent, env, plan))
    assert (best.metric, best.mode, best.value) == ("iteration", mode, kept[1])
    np.testing.assert_equal(best.row, run.best.row)
    # it is the policy of that iteration: the last one of a shorter run
    same(best.policy.learner, fit(None, kept[1]).state.learner)
    same(run.best.learner, best.policy.learner)
    # with another metric the saved policy is not used: the best is the first of the resumed rows
    file = tmp_path / "early" / "run.toml"
    file.write_text(file.read_text().replace('metric = "iteration"', 'metric = "env_steps"').replace('"max"', '"min"'))
    assert ppax.resume(tmp_path / "early", console=False).best.row["iteration"] == 4
    assert on_disk(tmp_path / "early") == [4]


@pytest.mark.parametrize("part", ["rnd", "ppg"])
def test_the_best_policy_of_an_extension_with_random_keys(tmp_path, part):
    """Keys have no NumPy form: the copy has keys again, in memory and after it was read from its file."""
    path = tmp_path / "run"
    plan = {"preset": "none", "num_envs": 2, "num_steps": 4, "total_steps": 16, "log": LOG}
    built = ppax.build(
        "CartPole-v1", agent={"extensions": {part: {"part": part}}}, best=BestSettings("iteration"), **plan
    )
    first = built.fit(path)
    saved = load_best(path, state_shapes(*built)).policy
    for got in (first.best.policy, saved):
        assert jax.tree.structure(got) == jax.tree.structure(policy_of(first.state))
        one, other = map(named_keys, (got, first.state))
        assert one
        np.testing.assert_equal(one, other)
    obs = np.zeros(4, np.float32)
    assert first.policy(best=True).act(obs) == ppax.load(path, best=True).act(obs) == ppax.load(path).act(obs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the learning rate follows the new length
        assert ppax.resume(path, total_steps=24, console=False).best.row["iteration"] == 3


def named_keys(state):
    """Data of the random keys in the learner of a state, by name."""
    learner = dataclasses.replace(state, actor=(), key=())
    arrays, keys = state_arrays.to_arrays(learner)
    return {name: arrays[name] for name in keys}


def test_of_two_saved_policies_the_better_one_is_loaded(tmp_path):
    """A kill between writing and removing leaves two; one may be of a later iteration than the run, one damaged."""
    state = fit(None, 1).state
    policy, like = dataclasses.replace(state, actor=(), key=()), jax.eval_shape(lambda: state)
    for iteration, value in ((3, 5.0), (4, 9.0), (7, 8.0), (9, 99.0)):
        notes = {"metric": "x", "mode": "max", "row": {"iteration": iteration, "x": value, "y": None}}
        now = dataclasses.replace(policy, iteration=np.int32(iteration))
        checkpoint.save(tmp_path / "best", now, keep=9, notes=notes)
    (tmp_path / "best" / "0000000009" / "state.safetensors").write_bytes(b"x")
    with pytest.warns(UserWarning, match="damaged best policy"):
        best = load_best(tmp_path, like)
    assert (int(best.policy.iteration), best.value) == (4, 9.0)
    assert np.isnan(best.row["y"])
    # also one whose manifest lacks the metric
    for path in checkpoint.list_checkpoints(tmp_path / "best"):
        shutil.rmtree(path)
    checkpoint.save(tmp_path / "best", policy, notes={"metric": "x", "row": {}})
    with pytest.warns(UserWarning, match="does not name the metric"):
        assert load_best(tmp_path, like) is None


def test_evaluate_loads_the_best_policy(tmp_path, capsys):
    path, common = tmp_path / "run", ["--no-cache", "--json", "--episodes", "4"]
    fit(path, 3, best=BestSettings("iteration", "min"))
    assert main.main(["evaluate", str(path), "--best", *common]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main.main(["evaluate", str(path), *common]) == 0
    last = json.loads(capsys.readouterr().out)
    assert (first["iterations"], last["iterations"]) == (1, 3)
    agent, env, run = load_run(path)
    trained = ppax.TrainedRun(agent, env, load_state(path, agent, env, run), [], path)
    assert trained.evaluate(4).mean_return == last["mean_return"]
    alone = fit(None, 1)
    assert alone.evaluate(4).mean_return == first["mean_return"]
    fit(tmp_path / "none", 1)
    assert main.main(["evaluate", str(tmp_path / "none"), "--best", *common]) == 2
    assert "--best.metric" in capsys.readouterr().err


RUN_FILE = """
env = "CartPole-v1"
num_envs = 2
num_steps = 4
total_steps = 64
stop = "iteration >= 3"
agent.network.hidden = [4]
agent.num_epochs = 1
log.every = 1
eval.episodes = 2

[best]
metric = "env_steps"
"""


def test_the_command_line_overrides_stop_and_best_of_a_run_file(tmp_path, capsys):
    file, path = tmp_path / "run.toml", tmp_path / "run"
    file.write_text(RUN_FILE)
    train = ["train", str(file), "--no-cache", "--json", "--run-dir", str(path)]
    assert main.main([*train, "--stop", "iteration > 2"]) == 2
    assert "received '>'" in capsys.readouterr().err
    assert not path.exists()
    assert main.main([*train, "--stop", "iteration >= 2"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["stopped"], json.loads(out)["iterations"]) == ("iteration >= 2 (at 2)", 2)
    assert "stopped early: iteration >= 2 (at 2)" in err
    assert f"ppax evaluate {path} --best   # env_steps" in err
    assert main.main([*train[:-1], str(tmp_path / "as_it_is"), "--best.metric", "none"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["iterations"] == 3
    assert "--best" not in err


def test_the_best_policy_is_written_before_the_state(tmp_path, monkeypatch):
    """A kill between the two writes leaves an older state: the best policy is never missing."""
    order, save = [], checkpoint.save
    monkeypatch.setattr(
        checkpoint, "save", lambda path, *args, **kw: order.append(path.name) or save(path, *args, **kw)
    )
    fit(tmp_path / "run", 3, best=BestSettings("iteration", "min"))
    assert order == ["best", "checkpoints", "checkpoints", "checkpoints"]  # and only once
