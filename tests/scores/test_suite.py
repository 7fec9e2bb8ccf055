"""Suite: its data, its choice by name, refused files, and seeds that no tuning has seen."""

import ast
import json
from pathlib import Path

import pytest

import ppax
from ppax import config
from ppax.scores import SCORE_SEEDS, TUNING_SEEDS
from ppax.scores.suite import choose, every, read_suite

ROOT = Path(__file__).parents[2]
CALIBRATION = ROOT / "benchmarks" / "results" / "calibration.json"
CALIBRATED = {result["row"]: result for result in json.loads(CALIBRATION.read_text())["results"]}
ROWS = {row.name: row for row in read_suite()}
SAMPLED = ("L7", "L8", "L9", "L7-", "L8-", "L9-", "L10", "L13")


def write(tmp_path, text):
    path = tmp_path / "suite.toml"
    path.write_text(text)
    return str(path)


# ---------------------------------------------------------------- data


def test_every_row_of_the_learning_suite_is_there():
    names = {f"L{number}" for number in range(1, 17)} | {"L1b", "L7-10M", "L8-10M", "L9-10M", "L12-20", "L13-central"}
    assert set(ROWS) == names
    assert {name for name, row in ROWS.items() if row.sampled} == {name for name in names if name[:3] in SAMPLED}
    quick = {row.name for row in choose([], "quick")}
    assert quick < {row.name for row in choose([], "full")} == names


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_complete(name):
    row = ROWS[name]
    assert row.threshold is not None
    assert row.reference is not None
    assert row.source
    calibrated = CALIBRATED.get(name, {"mean": row.reference, "bound": row.threshold})
    assert row.threshold <= max(row.reference, calibrated["mean"])
    assert row.threshold >= calibrated["bound"] - 0.05  # rounded
    if row.target.startswith("jaxmarl/"):
        pytest.importorskip("jaxmarl")  # its settings are those of its kind, for which the environment is made
    settings = config.settings(row.run_config())
    assert settings.total_steps == row.steps
    # presets, and kinds of environments, evaluate as the suite does; JaxMARL's published returns are of sampled actions
    assert settings.eval.deterministic is not row.sampled or row.target.startswith("jaxmarl/")


PUBLIC_ROWS = choose([], "public")
DEFAULTS = {"preset": "none"}
MEMORY = {"agent": {"network": {"memory": {"part": "gru"}}}}


def test_the_public_suite_has_environments_of_many_libraries_by_the_defaults_alone():
    """No preset, no setting chosen for an environment; a memory where velocities are hidden."""
    assert len(PUBLIC_ROWS) >= 30
    assert len({row.target.partition("/")[0] for row in PUBLIC_ROWS if "/" in row.target}) >= 6
    for row in PUBLIC_ROWS:
        assert row.options == (DEFAULTS | MEMORY if row.name == "public-CartPole-masked" else DEFAULTS)
        assert row.threshold is None
        assert not row.controls
        assert (row.reference is None) == (not row.source)
        assert row.seeds == (5 if row.target.startswith(("gymnasium/", "minigrid/", "craftax/")) else 10)
        assert row.given() == {**DEFAULTS, "env": row.target, "total_steps": row.steps} | row.options


def test_the_rows_of_named_suites_are_chosen_by_name():
    (row,) = choose(["public-CartPole"])
    assert (row.target, row.seeds) == ("CartPole-v1", 10)


def test_every_published_budget_has_a_control():
    """Rows that repeat another one's task share its control."""
    without = {name for name, row in ROWS.items() if not row.controls}
    assert without == {"L7-10M", "L8-10M", "L9-10M", "L13-central"}
    for row in every(list(ROWS.values()), True):
        if row.at_most is not None:
            parent = next(ROWS[name] for name in sorted(ROWS, key=len, reverse=True) if row.name.startswith(f"{name}-"))
            assert row.at_most < parent.threshold


def test_a_control_changes_the_rows_options_only():
    row = ROWS["L12-20"]
    (control,) = row.controls
    assert (control.name, control.at_most, control.threshold) == ("L12-20-no-memory", 0.3, None)
    changed = dict(config.flatten(config.resolve(control.run_config())))
    kept = dict(config.flatten(config.resolve(row.run_config())))
    assert changed["env_params.memory_length"] == 20
    assert changed.pop("agent.network.memory.part") == "none"
    assert kept.pop("agent.network.memory.part") == "gru"
    del kept["agent.network.memory.width"]
    assert changed == kept


EARLIER = choose([], "predecessors")


@pytest.mark.parametrize("row", EARLIER, ids=lambda row: row.name)
def test_a_task_of_a_predecessor_begins_from_its_preset_and_says_what_its_authors_report(row):
    system = row.name.partition("-")[0]
    assert row.run_config()["preset"] == f"styles/{system}"
    assert row.source
    assert choose([row.name]) == [row]
    assert row.threshold is None or row.reference is None or row.threshold <= row.reference


# ---------------------------------------------------------------- choice


def test_presets_rows_and_suites_are_chosen_by_name():
    assert [row.name for row in choose(["L12-20", "Pendulum-v1", "gymnax/Breakout-MinAtar"])] == ["L12-20", "L5", "L7"]
    (unlisted,) = choose(["styles/rl8"])
    assert (unlisted.name, unlisted.threshold) == ("styles-rl8", None)
    assert unlisted.run_config() == config.preset("styles/rl8") | {"preset": "styles/rl8"}
    (by_kind,) = choose(["gymnax/Catch-bsuite"])
    assert by_kind.run_config() == config.completed({"env": "gymnax/Catch-bsuite"}).config
    assert len(choose(["L1"], "quick")) == len(choose([], "quick"))  # not twice


RUN = 'env = "CartPole-v1"\ntotal_steps = 640\n'


def test_run_files_are_rows_with_the_name_of_the_file(tmp_path, monkeypatch):
    """Of the current directory or by path; a run directory has its own name, and two with one name are refused."""
    monkeypatch.chdir(tmp_path)
    for place in ("my run.toml", "seeds/run.toml", "other/seeds/run.toml"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(RUN)
    targets = {"my run.toml": "my-run", str(tmp_path / "my run.toml"): "my-run", "seeds": "seeds"}
    assert {target: choose([target])[0].name for target in targets} == targets
    assert choose(["./seeds/run.toml"])[0].run_config()["total_steps"] == 640
    with pytest.raises(ppax.ConfigError, match="seeds and other/seeds: results of both would be called seeds"):
        choose(["seeds", "other/seeds"])


@pytest.mark.parametrize(
    ("targets", "suite", "text"),
    [
        (["CartPole"], None, "no row, preset or environment 'CartPole'; did you mean 'CartPole-v1'"),
        ([], "quik", "must be quick, full, public, predecessors or a suite file (.toml); did you mean 'quick'"),
    ],
)
def test_unknown_names_are_refused(targets, suite, text):
    with pytest.raises(ppax.ConfigError) as error:
        choose(targets, suite)
    assert text in str(error.value)


GOOD = '[[row]]\nname = "A"\ntarget = "CartPole-v1"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows = 3", "list of tables [[row]]"),
        ('[[row]]\nname = "A"', "row 1: target is missing"),
        ('[[row]]\ntarget = "CartPole-v1"', "row 1: name = None"),
        (GOOD.replace('"A"', '"../A"'), "row 1: name = '../A'"),
        (GOOD.replace("CartPole-v1", "Cartpole"), "did you mean 'CartPole-v1'"),
        (GOOD + "treshold = 3", "unknown key 'treshold'; did you mean 'threshold'"),
        (GOOD + 'threshold = "high"', "row 1: threshold = 'high': must be of type float"),
        (GOOD + "steps = 0", "nearest valid value: 1"),
        (GOOD + 'suites = ["fast"]', "nearest: full"),
        (GOOD + "options = 3", "options = 3: must be a table"),
        (GOOD + "options = { agent.gama = 0.9 }", "unknown option 'agent.gama'; did you mean 'agent.gamma'"),
        (GOOD + "at_most = 3", "at_most belongs to a control"),
        (GOOD + '[[row.control]]\nname = "B"', "control of A: at_most is missing"),
        (GOOD + '[[row.control]]\nname = "B"\nat_most = 3\nsampled = true', "control of A: sampled is that of its row"),
        (GOOD + "[row.control]\nat_most = 3", "must be a list of tables, [[row.control]]"),
        (GOOD + GOOD, "several called A"),
    ],
)
def test_bad_suite_files_are_refused(text, message, tmp_path):
    with pytest.raises(ppax.ConfigError) as error:
        choose([], write(tmp_path, text))
    assert message in str(error.value)


# ---------------------------------------------------------------- seeds


def seeds_in(path):
    """Integers that are given as seeds or made into keys in a program."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = [word.value for word in node.keywords if word.arg in ("seed", "seeds")]
            given += node.args if name in ("key", "make_key", "PRNGKey") else []
            yield from (x.value for x in given if isinstance(x, ast.Constant) and isinstance(x.value, int))


def test_seeds_of_scores_are_those_of_no_preset_test_or_benchmark():
    assert not set(TUNING_SEEDS) & set(SCORE_SEEDS)
    assert {config.settings(config.find(name)).seed for name in config.presets()} <= set(TUNING_SEEDS)
    programs = [
        *ROOT.glob("tests/system/test_learning*.py"),
        *ROOT.glob("benchmarks/*.py"),
        *ROOT.glob("examples/*.py"),
    ]
    used = {seed for path in programs for seed in seeds_in(path)}
    assert 0 in used
    assert not used & set(SCORE_SEEDS)
