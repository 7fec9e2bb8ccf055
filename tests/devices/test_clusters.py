"""Connections to Ray clusters: the token that Ray's clusters ask for. The rest is in tests/sweeps/placing/."""

import subprocess
import sys

import pytest

pytest.importorskip("ray")
IMPORT = "import os; from ppax.devices import clusters; clusters._imported(); print(os.environ.get('RAY_AUTH_MODE'))"


@pytest.mark.parametrize(
    ("token", "given", "mode"),
    [(None, None, "None"), ("file", None, "token"), ("variable", None, "token"), ("file", "disabled", "disabled")],
)
def test_a_token_is_sent_where_there_is_one(token, given, mode, tmp_path, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if token == "file":
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("a" * 64)
    elif token:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    if given:
        monkeypatch.setenv("RAY_AUTH_MODE", given)
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [mode]
