"""JAX_ENABLE_X64: learning stays in 32 bits, results equal those without it, checkpoints are compatible."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ppax
from support.x64_runs import all_numbers, numbers

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]  # two processes that compile a dozen small programs each


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Directory with the results of runs in a process with 64-bit types."""
    where = tmp_path_factory.mktemp("wide")
    tests = Path(__file__).parents[1]
    paths = [str(tests), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(tests / "support" / "x64_runs.py"), str(where)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    return where


def test_runs_with_64_bit_types_stay_32_bit_and_equal_those_without(wide, tmp_path):
    """Each memory, normalisation, Independent in Groups, host policies in NumPy and compiled, 64-bit environments."""
    found = {}
    assert not all_numbers(tmp_path / "run", found.__setitem__)
    assert len(found) >= 12
    for name, expected in found.items():
        with np.load(wide / f"{name}.npz") as given:
            assert set(given) == set(expected)
            for leaf, x in expected.items():
                np.testing.assert_allclose(given[leaf], x, rtol=1e-4, atol=2e-5, err_msg=f"{name}: {leaf}")


def test_a_checkpoint_written_with_64_bit_types_resumes_without(wide):
    """Resume in this process with 32 bits and compare; no leaf of the checkpoint has 64 bits."""
    run = ppax.resume(wide / "run", console=False)
    assert int(run.state.iteration) == 2
    with np.load(wide / "recorded.npz") as given:
        for leaf, x in numbers(run.state).items():
            np.testing.assert_array_equal(given[leaf], x)
