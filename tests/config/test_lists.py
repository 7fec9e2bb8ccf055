"""Lists of parts in a configuration: [[log.to]] tables in run files, objects in Python, options of the command line."""

import tomllib

import pytest

from ppax import ConfigError, config
from ppax.cli import options as cli_options
from ppax.cli.main import main
from ppax.config import Log
from ppax.core.options import flatten, unflatten
from ppax.loggers import MLflow, TensorBoard, WandB

TWO = """
[log]
every = 3
[[log.to]]
part = "mlflow"
experiment = "poles"
[[log.to]]
part = "wandb"
mode = "offline"
system_metrics = false
"""
BUILT = (MLflow(experiment="poles"), WandB(mode="offline", system_metrics=False))


def parse(*arguments):
    return cli_options.parse_run("train", ["CartPole-v1", *arguments], cli_options.add_train)[1]


def built(plan):
    return config.settings(plan).log.to


def test_tables_of_a_run_file_build_parts_in_their_order():
    assert built(tomllib.loads(TWO)) == BUILT
    assert built({}) == ()
    assert built({"log": {"to": []}}) == ()


def test_a_resolved_configuration_round_trips_through_toml():
    plan = config.resolve(tomllib.loads(TWO))
    assert plan["log"]["to"][0] == {
        "part": "mlflow",
        "experiment": "poles",
        "tracking_uri": None,
        "system_metrics": True,
    }
    text = config.to_toml(plan)
    assert text.count("[[log.to]]") == 2
    assert config.resolve(tomllib.loads(text)) == plan
    assert unflatten(dict(flatten(plan))) == plan


def test_settings_made_in_python_describe_themselves_as_tables():
    plan = config.describe(config.Run(log=Log(to=BUILT)))
    assert plan["log"]["to"][1]["part"] == "wandb"
    assert built(plan) == BUILT
    assert config.describe(config.Run())["log"]["to"] == config.resolve({})["log"]["to"] == []


def test_ten_tables_and_more_keep_their_order():
    tables = [{"part": "mlflow", "experiment": str(i)} for i in range(12)]
    plan = unflatten(dict(flatten({"log": {"to": tables}})))
    assert [part.experiment for part in built(plan)] == [str(i) for i in range(12)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mlflow", r"log.to = 'mlflow': must be a list of tables, \[\[log.to\]\] part = "),
        (["mlflow"], r"log.to = \['mlflow'\]: must be a list of tables"),
        ({"part": "mlflow"}, r"log.to = .*: must be a list of tables"),
        ([{"part": "ml_flow"}], r"log.to.0.part = 'ml_flow': must be one of .*; nearest: mlflow"),
        ([{"experiment": "x"}], r"log.to.0.part = '': must be one of"),
        ([{"part": "wandb", "mode": "of"}], r"log.to.0.mode = 'of': must be one of online, offline; nearest: offline"),
        ([{"part": "mlflow", "experimnt": "x"}], r"'log.to.0.experimnt'; did you mean 'log.to.0.experiment'"),
        ([{"part": "mlflow"}, {"part": "wandb", "experiment": "x"}], r"unknown option 'log.to.1.experiment'"),
    ],
)
def test_invalid_lists_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        config.resolve({"log": {"to": given}})


def test_a_logger_that_is_no_part_of_the_catalogue_is_refused():
    with pytest.raises(ConfigError, match=r"to = .*: must be parts of the catalogue, .*MLflow; .* among callbacks"):
        config.describe(config.Run(log=Log(to=(print,))))


def test_parts_and_their_options_on_the_command_line():
    plan = parse("--log.to", "mlflow", "wandb", "--log.to.0.experiment", "poles", "--log.to.1.mode", "offline")
    assert built(plan) == (MLflow(experiment="poles"), WandB(mode="offline"))
    assert built(parse("--log.to=wandb")) == (WandB(),)
    assert built(parse("--log.to", "none")) == ()
    with pytest.raises(ConfigError, match=r"--log.to: needs the names of parts, or none"):
        parse("--log.to", "--seed", "1")
    with pytest.raises(ConfigError, match=r"log.to.0.part = 'mlfow': must be one of .*; nearest: mlflow"):
        parse("--log.to", "mlfow")


def test_parts_on_the_command_line_replace_those_of_the_file_and_keep_their_options(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('env = "CartPole-v1"\n' + TWO)

    def of_file(*arguments):
        return built(cli_options.parse_run("train", [str(path), *arguments], cli_options.add_train)[1])

    assert of_file() == BUILT
    assert of_file("--log.to", "wandb") == BUILT[1:]
    assert of_file("--log.to.0.experiment", "other") == (MLflow(experiment="other"), BUILT[1])
    assert of_file("--log.to.0.part", "wandb") == (WandB(), BUILT[1])  # another part has its own defaults
    assert of_file("--log.to", "none") == ()


def test_help_lists_the_parts_and_the_options_of_each(capsys):
    with pytest.raises(SystemExit):
        parse("--help", "log.to")
    out = capsys.readouterr().out
    assert "--log.to {tensorboard,wandb,mlflow}" in out
    assert "ppax train TARGET --log.to mlflow --help log.to" in out
    assert main(["train", "CartPole-v1", "--log.to", "mlfow", "--help", "log.to"]) == 2
    with pytest.raises(SystemExit):
        parse("--log.to", "mlflow", "--help", "log.to")
    out = capsys.readouterr().out
    assert "--log.to.0.experiment" in out
    assert "--log.every" not in out


def test_tensorboard_is_one_logger_whether_named_or_switched_on():
    assert Log(tensorboard=True, to=(TensorBoard(),)).parts == (TensorBoard(),)
    assert Log(tensorboard=True, to=BUILT).parts == (*BUILT, TensorBoard())
    assert Log().parts == ()
