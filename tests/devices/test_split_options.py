"""Options whose numbers come from the whole minibatch or rollout are the same on one device and on two."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["epoch", "minibatch"])
def test_two_devices_equal_one(name):
    program = Path(__file__).parents[1] / "support" / "split_options.py"
    done = subprocess.run([sys.executable, program, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)
    np.testing.assert_allclose(one["moved"], two["moved"], atol=1e-5)
    np.testing.assert_allclose(one["control"], two["control"], rtol=1e-5)
    assert one["metrics"].keys() == two["metrics"].keys()
    for metric, x in one["metrics"].items():
        np.testing.assert_allclose(x, two["metrics"][metric], rtol=1e-3, atol=1e-5, err_msg=metric)
    # the parameters changed
    assert max(np.abs(one["moved"])) > 1e-2
    assert one["control"] != [1.0]
    assert name == "minibatch" or 0.0 < one["metrics"]["updates_skipped"] < 1.0
