"""Every format of a bundle, in a process without ppax, gives the actions of the policy that was trained."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ppax
from ppax.policy.bundle import numpy_format
from ppax.policy.bundle.writing import FORMATS
from support import exported

pytestmark = pytest.mark.usefixtures("cached_programs")
READER = Path(exported.__file__).with_name("bundle_reader.py")
# the hardest networks and spaces, with and without normalisation; the nightly tests have all
DAILY = [
    ("named", "hybrid masked", True),
    ("cnn", "several masked", True),
    ("lru", "squashed", False),
    ("attention", "beta", True),
    ("stack", "masked", True),
    ("apart", "normal", False),
    ("normed", "discrete", True),
]


def read_alone(kind, folders):
    """Run the bundles in `folders` in a process that imports neither ppax nor, but for StableHLO, JAX."""
    command, plain = [sys.executable, READER, kind, *folders], os.environ | {"XLA_FLAGS": ""}
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def require_equal(found, wanted):
    for name, x in wanted.items():
        assert found[name].shape == x.shape
        assert found[name].dtype == x.dtype
        if x.dtype.kind == "f":
            np.testing.assert_allclose(found[name], x, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], x, err_msg=name)


def loaded_actions(path, inputs):
    """Return what `ppax.load` gives for the bundle: `act` in NumPy, with its own memory, and log-probabilities."""
    policy = ppax.load(path)
    return exported.own_actions(policy, inputs)


def require_same_everywhere(cases, tmp_path):
    """Those with statistics of observations also give V."""
    wanted, folders = {}, []
    for i, case in enumerate(cases):
        folder = tmp_path / str(i)
        folder.mkdir()
        policy = exported.policy(*case)
        return_value = case[2]
        written = policy.export(folder / "bundle.zip", ["numpy", "stablehlo", "onnx"], return_value=return_value)
        assert max(written.differences.values()) < 1e-5
        inputs = exported.observed(policy, return_value=return_value)
        np.savez(folder / "inputs.npz", **inputs)
        wanted[folder] = exported.own_actions(policy, inputs)
        require_equal(loaded_actions(folder / "bundle.zip", inputs), wanted[folder])
        if not return_value:
            del wanted[folder]["value"]
        folders.append(folder)
    for kind in FORMATS:
        read_alone(kind, folders)
        for folder in folders:
            require_equal(dict(np.load(folder / f"{kind}.npz")), wanted[folder])


def test_every_format_gives_the_same_actions(tmp_path):
    require_same_everywhere(DAILY, tmp_path)


@pytest.mark.usefixtures("vmapped_keys", "quick_programs")
def test_the_documents_on_export_run(tmp_path, monkeypatch, capsys):
    """Its four readers choose the same action."""
    page = (
        (Path(__file__).parents[3] / "docs" / "policies.md").read_text().split("\n## Export\n")[1].partition("\n## ")[0]
    )
    train, *readers = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(readers) == 3
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    exec(train.replace("20_000", "512"), {})
    (tmp_path / "numpy_policy.py").write_text(numpy_format.reader_text())
    played = {}
    for code in readers:
        code = code.replace("np.zeros((1, 4), np.float32)", "np.float32([[0, 0, 0.1, 0]])")
        exec(code.replace("jax.numpy.zeros((1, 4))", "jax.numpy.array([[0, 0, 0.1, 0]])"), played)
    sys.modules.pop("numpy_policy")
    inputs = {"obs": np.float32([[0, 0, 0.1, 0]]), "first": [True], **played["policy"].initial_carry(1)}
    with_numpy = played["policy"](inputs)["action"][0]  # this reader plays an episode, and prints nothing
    actions = capsys.readouterr().out.splitlines()[-3:]
    assert set(actions) == {str(with_numpy)}, actions


@pytest.mark.nightly
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("network", exported.NETWORKS)
def test_every_network_and_space_gives_the_same_actions(network, normalize, tmp_path):
    cases = itertools.product([network], exported.SPACES, [normalize])
    require_same_everywhere(list(cases), tmp_path)
