"""Every example runs; long ones with fewer iterations."""

import importlib.util
from pathlib import Path

import jax
import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.usefixtures("vmapped_keys")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, capsys):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ITERATIONS = 4
    with jax.numpy_rank_promotion("allow"):
        module.main()
    assert capsys.readouterr().out.count("\n") >= 1
