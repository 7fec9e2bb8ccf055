"""Documentation: every Python block of the pages below runs, with fewer steps."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
RUN = (
    "change_the_update",
    "extending",
    "extensions",
    "follow_runs",
    "from_cleanrl",
    "from_rllib",
    "from_rsl_rl",
    "from_sb3",
    "jax_environments",
    "losses",
    "many_agents",
    "move_runs",
    "networks",
    "policies",
    "python_environments",
    "robots",
    "settings",
    "start",
    "sweeps",
    "vary_environments",
)


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{name}.md").read_text(), re.DOTALL)


def shortened(code):
    """Return the program with one or two iterations, few environments, and without evaluation."""
    code = re.sub(r"total_steps=[\d_]+", "total_steps=512", code)
    code = re.sub(r"num_iterations=\d+", "num_iterations=2", code.replace("states, 20)", "states, 2)"))
    code = re.sub(r"num_steps=\d+", "num_steps=32", code)
    code = re.sub(r"(FilmSettings\(every)=\d+", r"\1=1", code)  # an interval longer than the run is refused
    code = re.sub(r'"every": "[^"]*steps"', '"every": 1', code)
    if "num_steps=" not in code:
        code = code.replace("total_steps=512, ", "total_steps=512, num_steps=32, ")
    code = re.sub(r"run\.evaluate\(episodes=\d+\)\.mean_return", "run.env_steps", code)
    return re.sub(r"num_envs=\d+", "num_envs=8", code)


def run(code):
    """Run the program; return its output and its names."""
    names, out = {}, io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(shortened(code), "docs", "exec"), names)
    return out.getvalue(), names


TESTED = (
    'if __name__ == "__main__":',
    "pole.zip",
)  # a program that reads arguments, export: they have tests of their own
PROGRAMS = [
    pytest.param(code, id=f"{name}-{i}")
    for name in RUN
    for i, code in enumerate(blocks(name))
    if not any(text in code for text in TESTED)
]


@pytest.mark.filterwarnings("ignore:preset .* is tuned for")  # not for so few steps
@pytest.mark.usefixtures("vmapped_keys", "quick_programs")
@pytest.mark.parametrize("code", PROGRAMS)
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(code)[0]
