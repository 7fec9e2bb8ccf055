"""`--device`: JAX's platform, or a single GPU, chosen before JAX starts; a clear error where there is none."""

import os
import subprocess
import sys

import jax
import pytest

import ppax
from ppax.cli import main
from ppax.cli.arguments import DEVICE, without
from ppax.devices import sharding

TINY = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "64", "--eval.episodes", "1", "--no-log.console"]
TINY += ["--agent.network.hidden", "8", "--agent.num-epochs", "1"]
HAS_GPU = os.path.exists("/dev/nvidia0")


def process(*arguments, **variables):
    command = [sys.executable, "-m", "ppax", *map(str, arguments)]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on the CPU, although the environment variable names a platform that is not there."""
    path = tmp_path_factory.mktemp("trained") / "run"
    done = process("train", "MountainCar-v0", *TINY, "--run-dir", path, "--device", "cpu", JAX_PLATFORMS="tpu")
    assert done.returncode == 0, done.stderr
    return path


def test_the_option_wins_over_the_environment_variable(trained):
    assert '"platform": "cpu"' in (trained / "about.json").read_text()


@pytest.mark.skipif(HAS_GPU, reason="there is one")
@pytest.mark.parametrize("verb", ["train", "sweep", "bench", "selftest", "resume", "evaluate", "play", "export"])
def test_a_device_that_is_not_here_is_refused_by_every_command(verb, trained, monkeypatch, capsys, tmp_path):
    """In this process JAX has started on the CPU already, as where no GPU is found."""
    monkeypatch.chdir(tmp_path)
    target = "MountainCar-v0" if verb in ("train", "sweep", "bench", "selftest") else trained
    assert main.main([verb, str(target), "--device=cuda:1"]) == 2
    assert "ppax: --device cuda:1: JAX finds no such device here" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(HAS_GPU, reason="there is one")
def test_a_process_without_a_gpu_refuses_it_in_one_line(tmp_path):
    done = process("train", "MountainCar-v0", *TINY, "--device", "gpu", "--run-dir", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.startswith("ppax: --device gpu: JAX finds no such device here")
    assert done.stderr.count("\n") == 1
    assert 'pip install "ppax[cuda13]"; to run on the CPU write --device cpu' in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["gpu0", "cpu:1", "tpu:0", "cuda:", "cuda:one", "cuda:1,2", ""])
def test_other_names_are_refused(name, capsys):
    assert main.main(["presets", "--device", name]) == 2
    assert f"--device {name}: must be one of cpu, gpu, cuda, rocm, tpu, or a single GPU" in capsys.readouterr().err


def test_a_device_is_needed(capsys):
    assert main.main(["presets", "--device"]) == 2
    assert "--device: needs a device, as cpu" in capsys.readouterr().err
    assert without(DEVICE, ["train", "--device", "cpu", "x", "--device=gpu"]) == (["train", "x"], ["cpu", "gpu"])


def test_an_unavailable_platform_is_refused_where_the_environment_decides_the_settings(tmp_path):
    """Acrobot-v1 is no preset: its settings are those for its kind, which the environment tells."""
    done = process("train", "Acrobot-v1", *TINY, "--run-dir", tmp_path / "run", JAX_PLATFORMS="tpu")
    assert done.returncode == 2
    assert "JAX_PLATFORMS = 'tpu'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def broken(tmp_path):
    """Environment variables with which JAX finds a plugin that cannot start, as of a GPU whose driver is too old."""
    package = tmp_path / "plugin" / "jax_plugins" / "of_a_gpu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import jax._src.xla_bridge as bridge\n"
        "def start():\n    raise RuntimeError('the driver is too old')\n"
        "def initialize():\n    bridge.register_backend_factory('of_a_gpu', start, priority=500, fail_quietly=False)\n"
    )
    paths = str(tmp_path / "plugin"), *filter(None, [os.environ.get("PYTHONPATH")])
    return {"PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": ""}


def test_a_broken_plugin_is_an_error_that_says_how_to_run_on_the_cpu(broken):
    train = ["train", "CartPole-v1", *TINY, "--dry-run"]
    done = process(*train, **broken)
    assert done.returncode == 2
    assert done.stderr.startswith("ppax: JAX cannot start: ")
    assert "the driver is too old" in done.stderr
    assert "--device cpu" in done.stderr
    assert "JAX_PLATFORMS=cpu" in done.stderr
    for remedy in (process(*train, "--device", "cpu", **broken), process(*train, **broken | {"JAX_PLATFORMS": "cpu"})):
        assert remedy.returncode == 0, remedy.stderr


@pytest.fixture
def gpus(monkeypatch):
    """JAX with the plugin for AMD's GPUs alone; its settings, in the order in which they are made."""
    made = []

    def backend():
        if not made or "rocm" not in dict(made)["jax_platforms"]:
            raise RuntimeError("Unable to initialize backend 'cuda'")
        return "gpu"

    monkeypatch.setattr(jax, "default_backend", backend)
    monkeypatch.setattr(jax.config, "update", lambda name, value: made.append((name, value)))
    return made


def test_a_gpu_is_of_the_installed_plugin(gpus):
    sharding.use_device("gpu:2")
    settings = {"jax_platforms": "rocm,cpu", "jax_cuda_visible_devices": "2", "jax_rocm_visible_devices": "2"}
    assert dict(gpus) == settings


def test_settings_are_restored_where_there_is_no_such_device(gpus):
    before = jax.config.values["jax_platforms"]
    with pytest.raises(ppax.ConfigError, match="Unable to initialize backend 'cuda'"):
        sharding.use_device("cuda")
    assert gpus[-1] == ("jax_platforms", before)
