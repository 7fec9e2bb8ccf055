"""Loggers of Weights & Biases and MLflow without their packages: what is refused, and ids from a run directory."""

import importlib.util
import json

import pytest

import ppax
from ppax.config import Log
from ppax.loggers import MLflow, WandB
from ppax.loggers.mlflow import RECORD, recorded_id


@pytest.mark.parametrize(
    ("part", "lacking", "extra"),
    [(MLflow(), "mlflow", "mlflow"), (MLflow(), "psutil", "mlflow"), (WandB(), "wandb", "wandb")],
)
def test_a_missing_package_is_reported_with_its_extra_before_the_run(part, lacking, extra, monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == lacking else find("json"))
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    with pytest.raises(ImportError, match=rf'needs {lacking}: pip install "ppax\[{extra}\]"'):
        ppax.fit(agent, env, 32, num_steps=8, run_dir=tmp_path / "run", log=Log(to=(part,), console=False))
    assert not (tmp_path / "run").exists()


def test_psutil_is_needed_for_system_metrics_only(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "psutil" else find("json"))
    MLflow(system_metrics=False).require(None)


@pytest.mark.parametrize(
    "record",
    ["", "[]", "{}", '{"run_id": 7}', '{"run_id": "../../secret"}', json.dumps({"run_id": "a" * 33}), "[" * 10**4, "é"],
)
def test_an_invalid_record_of_a_run_directory_names_no_run(record, tmp_path):
    (tmp_path / RECORD).write_text(record, encoding="latin-1")
    assert recorded_id(tmp_path) == ""


def test_a_valid_record_names_its_run(tmp_path):
    assert recorded_id(tmp_path) == ""
    (tmp_path / RECORD).write_text(json.dumps({"run_id": "0123456789abcdef" * 2}))
    assert recorded_id(tmp_path) == "0123456789abcdef" * 2


def test_a_working_directory_that_may_be_a_strangers_chooses_no_server(tmp_path, monkeypatch):
    """MLflow would take the database in it, which says where artefacts are written; wandb its settings, a server."""
    found = importlib.util.find_spec("json")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nbase_url = http://stranger.example\n")
    MLflow().require(None)
    WandB().require(None)
    (tmp_path / "about.json").write_text("{}")
    with pytest.raises(ppax.ConfigError, match=r"MLflow would take mlflow\.db of the working directory"):
        MLflow().require(None)
    with pytest.raises(ppax.ConfigError, match="wandb would read wandb/settings of the working directory"):
        WandB().require(None)
    (tmp_path / "wandb" / "settings").unlink()
    WandB().require(None)
    MLflow(tracking_uri="http://localhost:5000").require(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    MLflow().require(None)
