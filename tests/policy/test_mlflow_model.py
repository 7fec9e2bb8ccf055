"""MLflow models with the real MLflow, loaded and served in processes of their own, against the policy itself."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.types import ConfigError
from ppax.policy import PolicySpec
from ppax.policy.bundle.interface import Interface
from support import exported

pytest.importorskip("mlflow")
httpx = pytest.importorskip("httpx")
pytestmark = [
    pytest.mark.nightly,  # importing MLflow takes ten seconds, in every process
    pytest.mark.filterwarnings("ignore"),  # of MLflow
    pytest.mark.usefixtures("cached_programs"),
]
READER = Path(exported.__file__).with_name("mlflow_reader.py")
# without telemetry, which would need the internet
ALONE = os.environ | {"XLA_FLAGS": "", "MLFLOW_DISABLE_TELEMETRY": "true"}
SEEN = spaces.Dict(own=exported.VECTOR, kind=spaces.Discrete(3, start=1), mass=spaces.Box(-1.0, 1.0, (2,), np.float32))


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def hard():
    """Policy with masks, a memory each for actor and critic, and an entry that only the critic reads."""
    network = {"hidden": [8], "actor_obs": ["own", "kind"], "memory": {"part": "lstm", "width": 4}}
    config = {"agent": {"normalize_obs": True, "network": network}}
    return exported.random_policy(PolicySpec(SEEN, spaces.Discrete(5, start=-2), masked=True, config=config))


CASES = {
    "vector": (lambda: exported.policy("shared", "discrete", True), True),
    "hard": (hard, True),
    "actions alone": (hard, False),
    "images": (lambda: exported.policy("cnn", "hybrid masked", False), True),
}


def require_equal(found, wanted, return_value):
    for name, x in wanted.items():
        if name == "value" and not return_value:
            assert name not in found
        elif x.dtype.kind == "f":
            np.testing.assert_allclose(found[name], x, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], x, err_msg=name)


def test_a_loaded_model_gives_actions_and_v_of_the_policy(tmp_path):
    """Over several steps with episodes' ends and memory; the process has no ppax and no JAX."""
    wanted, folders = {}, []
    for name, (make, return_value) in CASES.items():
        folder, policy = tmp_path / name, make()
        written = policy.export_mlflow(folder / "model", return_value=return_value)
        assert written.path == folder / "model"
        inputs = exported.observed(policy, 6, 10, return_value)
        whole = exported.observed(policy, 6, 10, True)
        wanted[folder] = exported.own_actions(policy, whole | inputs), return_value
        np.savez(folder / "inputs.npz", **inputs)
        folders.append(folder)
    done = subprocess.run([sys.executable, READER, *folders], env=ALONE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for folder, (own, return_value) in wanted.items():
        require_equal(dict(np.load(folder / "mlflow.npz")), own, return_value)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(CASES)  # nothing else was written
    assert {path.name for folder in folders for path in folder.iterdir()} == {"model", "inputs.npz", "mlflow.npz"}


@pytest.fixture
def served(tmp_path):
    """Function that serves a model by `mlflow models serve` and returns its address."""
    processes = []

    def serve(model):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(model), "--env-manager", "local"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{ALONE['PATH']}"  # of uvicorn
        log = open(tmp_path / "server.txt", "w")  # noqa: SIM115
        processes.append(
            subprocess.Popen(
                [*command, "-p", str(port)], env=ALONE | {"PATH": path}, stdout=log, stderr=log, start_new_session=True
            )
        )
        until = time.monotonic() + 200.0
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/ping").status_code == 200:
                    return f"http://127.0.0.1:{port}/invocations"
            except httpx.TransportError:
                pass
            assert time.monotonic() < until, (tmp_path / "server.txt").read_text()
            time.sleep(0.2)

    yield serve
    for process in processes:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def test_a_served_model_gives_actions_and_v_of_the_policy_over_an_episode(served, tmp_path):
    """By JSON, with the memory sent back in each step; bad inputs are refused, and the service goes on."""
    policy = hard()
    policy.export_mlflow(tmp_path / "model", return_value=True)
    inputs = exported.observed(policy, 4, 3, True)
    wanted = exported.own_actions(policy, inputs)
    url, rows = served(tmp_path / "model"), []
    leaves = Interface(policy, return_value=True).inputs
    carry = {x.name: np.zeros((3, *x.shape)).tolist() for x in leaves if x.name.startswith("carry")}
    for t in range(4):
        given = {name: x[t].tolist() for name, x in inputs.items()} | carry
        reply = httpx.post(url, json={"inputs": given}, timeout=120.0)
        assert reply.status_code == 200, reply.text
        out = reply.json()["predictions"]
        carry = {name.removeprefix("next_"): x for name, x in out.items() if name.startswith("next_carry")}
        rows.append(out)
    found = {name: np.array([row[name] for row in rows]) for name in wanted}
    require_equal(found, wanted, True)
    for wrong, words in (
        ({k: x for k, x in given.items() if k != "obs.mass"}, "missing inputs ['obs.mass']"),
        (given | {"obs.kind": [0, 1, 2]}, "obs.kind has the number 0; must be from 1 to 3"),
        (given | {"obs.own": [[0.0] * 3] * 3}, "(-1, 4)"),
    ):
        reply = httpx.post(url, json={"inputs": wrong}, timeout=120.0)
        assert reply.status_code == 400
        assert words in reply.json()["message"]
    assert httpx.post(url, json={"inputs": given}, timeout=120.0).status_code == 200


def test_a_network_without_a_numpy_version_is_served_by_jax(tmp_path):
    """And an MLflow run has a model among its artefacts."""
    import mlflow

    spec = PolicySpec(exported.VECTOR, spaces.Discrete(3))
    agent = ppax.PPO(exported.Sorted(ppax.networks.mlp(spec, hidden=(8,))))
    policy = ppax.Policy(agent, agent.init(spec.observation_space, jax.random.key(0)), spec)
    policy.export_mlflow(tmp_path / "model", return_value=True)
    assert (tmp_path / "model" / "requirements.txt").read_text().split()[-1] == f"jax=={jax.__version__}"
    obs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    own = policy.act(obs, return_value=True)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.create_experiment("poles", artifact_location=str(tmp_path / "artefacts"))
    mlflow.set_experiment("poles")
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(tmp_path / "model"), "policy")
    out = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/policy").predict({"obs": obs})
    np.testing.assert_array_equal(out["action"], own.action)
    np.testing.assert_allclose(out["value"], own.value, rtol=1e-5, atol=1e-6)


def test_a_model_is_not_written_over_anything(tmp_path):
    policy = exported.policy("shared", "discrete", False)
    (tmp_path / "pole").mkdir()
    with pytest.raises(ConfigError, match=r"pole: exists; must be a new directory; nearest valid value: .*pole-2"):
        policy.export_mlflow(tmp_path / "pole")
    assert list(tmp_path.iterdir()) == [tmp_path / "pole"]


def test_a_model_from_the_command_line(tmp_path, capsys, monkeypatch):
    from ppax.cli.main import main

    monkeypatch.chdir(tmp_path)
    policy = exported.policy("shared", "discrete", True)
    policy.export("pole.zip", ["numpy"])
    arguments = ["export", "pole.zip", "--mlflow", "models/pole", "--return-value", "--no-cache"]
    assert main(arguments) == 0
    assert "mlflow models serve -m models/pole --env-manager local" in capsys.readouterr().out
    assert main(arguments) == 2
    assert "nearest valid value: models/pole-2" in capsys.readouterr().err
    assert main([*arguments, "--formats", "numpy"]) == 2
    assert "leave out --formats" in capsys.readouterr().err
    import mlflow.pyfunc

    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    out = mlflow.pyfunc.load_model("models/pole").predict({"obs": obs})
    own = policy.act(obs, return_value=True)
    np.testing.assert_array_equal(out["action"], own.action)
    np.testing.assert_allclose(out["value"], own.value, rtol=1e-5, atol=1e-6)
