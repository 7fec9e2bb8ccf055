"""Best policy by a function of the log row: in Python, in a run file and on the command line."""

import json
import math

import jax
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli import main
from ppax.config import BestSettings, EvalSettings, Log
from ppax.core import imports
from ppax.core.types import ConfigError
from ppax.envs import VectorEnv
from ppax.envs.builtin import EndlessCartPole
from ppax.networks import mlp
from ppax.run.conditions import KeepBest
from ppax.run.loop import RunLoop
from support.row_scores import calm, failing, halved, misspelt, near_three, of_two, silent, unending
from support.worlds import Counter

PACKAGE = "support"
PATH = "support.row_scores:near_three"
SIZES = [
    "--num-envs",
    "2",
    "--num-steps",
    "8",
    "--total-steps",
    "96",
    "--log.every",
    "1",
    "--agent.network.hidden",
    "4",
]
QUICK = [*SIZES, "--no-log.console", "--no-cache", "--eval.episodes", "2"]
pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.fixture(autouse=True)
def no_trust(monkeypatch, tmp_path):
    monkeypatch.setattr(imports, "_trusted", set())
    monkeypatch.setattr(imports, "_beside", set())
    monkeypatch.setenv("PPAX_SETTINGS", str(tmp_path / "no settings.toml"))


def fit(score, iterations=6, mode="max", **options):
    env = VectorEnv(Counter(6), 2)
    agent = ppax.PPO(mlp(env, (4,)), num_epochs=1, learning_rate=0.01)
    settings = {"log": Log(every=1, checkpoint_seconds=0.0, console=False), "best": BestSettings(score, mode)}
    return ppax.fit(agent, env, iterations * 16, num_steps=8, **settings | options)


@pytest.mark.parametrize(("mode", "choose"), [("max", max), ("min", min)])
def test_the_row_with_the_best_number_is_kept_with_its_policy(mode, choose):
    """Oracle: Python's max and min over the rows, and copies of all policies."""
    policies = {}

    def copied(state, row):
        policies[row["iteration"]] = jax.tree.map(np.array, state.learner.params)

    run = fit(calm, mode=mode, callbacks=[copied])
    expected = choose(run.history, key=calm)
    assert (run.best.row["iteration"], run.best.value, run.best.key) == (
        expected["iteration"],
        calm(expected),
        "support.row_scores:calm",
    )
    kept = jax.tree.map(np.asarray, run.policy(best=True).learner.params)
    jax.tree.map(np.testing.assert_array_equal, kept, policies[expected["iteration"]])


def test_rows_in_which_the_function_gives_nan_do_not_count():
    run = fit(halved, 4, evaluation=EvalSettings(every=4, episodes=2))
    assert [math.isnan(row["eval_return"]) for row in run.history] == [False, True, True, True, False]
    assert (run.best.row["iteration"], run.best.value) == (0, 10.5)  # 1 + ... + 6, halved, of the first evaluation


def test_the_run_file_names_the_function_and_a_resumed_run_goes_on_comparing(tmp_path):
    run = fit(near_three, 2, run_dir=tmp_path / "run")
    assert config.read(tmp_path / "run" / "run.toml")["best"] == {"metric": PATH, "mode": "max"}
    # which the commands that a run suggests ask to trust
    assert config.import_paths(config.read(tmp_path / "run" / "run.toml"))["best.metric"] == PATH
    assert (run.best.row["iteration"], run.best.value) == (2, -1.0)
    (manifest,) = (tmp_path / "run" / "best").glob("*/manifest.json")
    notes = json.loads(manifest.read_text())["notes"]
    assert (notes["metric"], notes["value"], notes["row"]["iteration"]) == (PATH, -1.0, 2)
    with pytest.raises(ConfigError, match=rf"best.metric = '{PATH}': to import code is to run it.*--trust {PACKAGE}"):
        ppax.resume(tmp_path / "run", agent=run.agent, env=run.env, console=False, total_steps=96)
    with imports.trusting([PACKAGE]):
        at_end = ppax.resume(tmp_path / "run", agent=run.agent, env=run.env, console=False)
        assert (at_end.best.row["iteration"], at_end.best.value) == (2, -1.0)  # read, not computed again
        longer = ppax.resume(tmp_path / "run", agent=run.agent, env=run.env, console=False, total_steps=96)
    assert (longer.best.row["iteration"], longer.best.value) == (3, 0.0)
    assert {saved.metric for saved in ppax.checkpoints(tmp_path / "run")} == {"episode_return"}


def test_the_command_line_takes_a_path_with_trust(tmp_path, capsys):
    train = ["train", "CartPole-v1", *QUICK, "--best.metric", PATH, "--run-dir", str(tmp_path / "run")]
    assert main.main(train) == 2
    assert f"--trust {PACKAGE}" in capsys.readouterr().err
    assert main.main([*train, "--trust", PACKAGE]) == 0
    said = capsys.readouterr().out
    assert f"ppax evaluate {tmp_path / 'run'} --best --trust {PACKAGE}   # {PATH} 0 at" in said
    evaluate = ["evaluate", str(tmp_path / "run"), "--best", "--episodes", "2", "--no-cache", "--json"]
    assert main.main([*evaluate, "--trust", PACKAGE]) == 0
    assert json.loads(capsys.readouterr().out)["iterations"] == 3
    assert main.main(["train", str(tmp_path / "run" / "run.toml"), "--run-dir", str(tmp_path / "again")]) == 2
    assert PATH in capsys.readouterr().err


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (misspelt, r"no metric 'grad_norms' is logged; did you mean 'grad_norm'\?"),
        (halved, r"no metric 'eval_return' is logged; it is one of evaluations during training: set eval.every"),
        (failing, r"failing: gave no number for a log row \(ValueError: .*return a number for every row, and NaN"),
        (silent, r"silent: gave no number for a log row \(TypeError: "),
        (of_two, r"of_two: gave no number for a log row \(TypeError: of_two\(\) missing 1 required"),
        (lambda row: row["grad_norm"], r"BestSettings.metric = .*<lambda>: a run file names .*write it in a module"),
        (Counter, r"best.metric = .*Counter.*must be the name of a metric, or a function Row -> float"),
    ],
    ids=["misspelt", "no evaluations", "failing", "silent", "arguments", "lambda", "class"],
)
def test_what_cannot_choose_is_refused_before_training(score, text, monkeypatch):
    monkeypatch.setattr(RunLoop, "compile", None)
    with pytest.raises(ConfigError, match=text):
        fit(score)


def test_an_environment_that_never_ends_has_no_value_for_a_function_of_returns():
    env = VectorEnv(EndlessCartPole(), 2)
    agent = ppax.PPO(mlp(env, (4,)))
    with pytest.raises(ConfigError, match="never ends an episode, so that episode_return never has a value"):
        ppax.fit(agent, env, 64, num_steps=8, best=BestSettings(unending))


def test_a_callback_takes_any_function():
    keep = KeepBest(lambda row: -row["iteration"])
    fit(None, 2, callbacks=[keep])
    assert (keep.row["iteration"], keep.value, keep.metrics) == (1, -1.0, ("iteration",))
