"""`import ppax` loads no environment suite, plotting library or experiment tracker."""

import importlib.util
import subprocess
import sys

HEAVY = [
    "gymnax",
    "brax",
    "matplotlib",
    "tensorboardX",
    "wandb",
    "mlflow",
    "pandas",
    "torch",
    "orbax.checkpoint",
    "scipy",
]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_loads_no_heavy_library():
    flax_alone = set(run("import jax, optax, sys; from flax import nnx; print(*sys.modules)").split())
    ours = set(run("import ppax, sys; print(*sys.modules)").split())
    assert [name for name in HEAVY if name in ours - flax_alone] == []


def test_import_does_no_work_on_a_device():
    code = "import ppax; from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    assert run(code) == "False"


def test_tests_run_alike_however_pytest_is_started():
    """`python -m pytest` puts the current directory on the path, from which classes of tests could then be imported."""
    assert importlib.util.find_spec("benchmarks") is None
