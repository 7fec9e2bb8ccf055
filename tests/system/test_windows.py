"""On Windows: what it lacks is not touched by an import, a run, its resume, its replacement, an export."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
BEGIN = """
import sys
sys.path.insert(0, {tests!r})
import filelock, gymnasium, jax, optax, rich, safetensors.numpy  # these have branches of their own for Windows
from support import windows
windows.pretend()
"""
RUN = """
from ppax.cli.main import main
SIZES = "--num-envs 2 --num-steps 8 --eval.episodes 2 --agent.num-epochs 1 --agent.network.hidden 4 --log.every 1"
TRAIN = ["train", "CartPole-v1", *SIZES.split(), "--log.checkpoint-seconds", "0", "--total-steps", "32"]
assert main([*TRAIN, "--run-dir", "my run"]) == 0
assert main(["resume", "my run", "--total-steps", "64"]) == 0
assert main(["export", "my run", "--formats", "numpy"]) == 0
assert main(["evaluate", "my run/policy.zip", "--episodes", "2"]) == 0
assert main([*TRAIN, "--run-dir", "my run", "--overwrite"]) == 0
import ppax
assert ppax.load("my run").act([0.0, 0.0, 0.1, 0.0]) in (0, 1)
print(ppax.devices.footprint.available_bytes())
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pretence reads /proc")


def on_windows(code, folder):
    """Run code in a process that takes itself for one on Windows; return its exit code and output."""
    command = [sys.executable, "-X", "warn_default_encoding", "-c", BEGIN.format(tests=str(TESTS)) + code]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=280
    )
    return done.returncode, done.stdout


def test_a_run_needs_nothing_that_windows_lacks(tmp_path):
    code, said = on_windows(RUN, tmp_path)
    assert code == 0, said
    assert '\n  ppax evaluate "my run" --episodes 1000\n' in said  # as cmd and PowerShell quote it
    assert '\n  ppax report "my run"   # one page: curves, settings, an episode\n' in said
    names = [path.name for path in tmp_path.rglob("*")]
    assert {"policy.zip", "metrics.csv"} <= set(names)
    assert sum(name.startswith("my run-until-") for name in names) == 1
    assert [name for name in names if set(name) & set('<>:"\\|?*') or name[-1] in ". "] == []


def test_worker_processes_are_refused_with_what_to_write(tmp_path):
    code, said = on_windows("import ppax\nppax.make('gymnasium/CartPole-v1', 2, vectorization='async')", tmp_path)
    assert code == 1
    assert 'ConfigError: vectorization = "async": worker processes need Linux or macOS' in said
    assert '"sync" (--vectorization sync)' in said


REFUSED = {
    "os.geteuid()": "AttributeError",
    "import resource": "ModuleNotFoundError",
    "from signal import SIGHUP": "ImportError",
    "select.poll()": "AttributeError",
    "os.rename('open', 'other')": "PermissionError",
    "os.rename('other', 'open')": "PermissionError",
    "os.rename('.', '../moved')": "PermissionError",
    "Path('open').unlink()": "PermissionError",
    "os.fsync(held)": "OSError",
    "Path('open').read_text()": "EncodingWarning",
}
TRY = """
for line in REFUSED:
    try:
        exec(line)
        print("accepted")
    except Exception as error:
        print(type(error).__name__)
"""


def test_the_pretence_refuses_what_windows_refuses(tmp_path):
    """Otherwise the tests above could not fail."""
    (tmp_path / "open").touch()
    (tmp_path / "other").touch()
    module = f"import os, select\nfrom pathlib import Path\nheld = open('open', 'rb')\nREFUSED = {list(REFUSED)}{TRY}"
    code, said = on_windows(f"exec(compile({module!r}, 'x.py', 'exec'), {{'__name__': 'ppax.made_up'}})", tmp_path)
    assert (code, said.split()[-len(REFUSED) :]) == (0, list(REFUSED.values()))  # after warnings of libraries
