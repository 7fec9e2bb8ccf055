"""The quick suite: every row reaches its threshold, every control fails, on seeds that no tuning has seen.

pytest -m nightly tests/system/test_scores.py
"""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


def test_quick_suite(tmp_path):
    pytest.importorskip("gymnax")
    command = [sys.executable, "-m", "ppax", "score", "--suite", "quick", "--controls", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
