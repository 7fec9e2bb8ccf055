"""Every example runs; long ones with fewer iterations."""

import importlib.util
from pathlib import Path

import jax
import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
LONG = {"mpe", "navigators", "pursuit"}  # to compile
OPTIONAL = {"mpe": "jaxmarl", "navigators": "PIL", "pursuit": "PIL"}


def example(path):
    return pytest.param(path, id=path.stem, marks=pytest.mark.nightly if path.stem in LONG else ())


@pytest.mark.usefixtures("vmapped_keys")
@pytest.mark.parametrize("path", map(example, EXAMPLES))
def test_example_runs(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for films
    if path.stem in OPTIONAL:
        pytest.importorskip(OPTIONAL[path.stem])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ITERATIONS = 4
    with jax.numpy_rank_promotion("allow"):
        module.main()
    assert capsys.readouterr().out.count("\n") >= 1
