"""What the README shows runs: its Python blocks, its run file, its commands."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from ppax import config
from ppax.cli import options

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"), ids=["fit", "pure", "host"])
def test_python_blocks_run(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = code.replace("total_steps=500_000", "total_steps=20_000").replace("num_iterations=50", "num_iterations=2")
    quick = quick.replace("total_steps=100_000", "total_steps=4_000")
    assert quick != code
    exec(compile(quick, "README.md", "exec"), {})
    assert float(capsys.readouterr().out.split()[-1]) > 5.0


def test_the_run_file_is_valid():
    first, second = (config.build(tomllib.loads(text)) for text in blocks("toml"))
    assert first.agent.schedule.leaves == ("learning_rate", "loss.clip_eps")
    assert second.run.eval.env_params == {"half_length": 0.5}


def test_train_commands_parse():
    commands = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines()]
    parsed = 0
    for command in commands:
        words = shlex.split(command)
        if words[:2] == ["ppax", "train"] and "--help" not in words and "runs/mine/run.toml" not in words:
            options.parse_run("train", words[2:], options.add_train)
            parsed += 1
    assert parsed >= 1
