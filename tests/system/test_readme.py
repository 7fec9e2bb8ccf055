"""README: its Python block runs, its run file builds, its commands parse."""

import re
import shlex
import tomllib
from pathlib import Path

import ppax
from ppax import config
from ppax.cli import options

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_block_runs(tmp_path, monkeypatch, capsys):
    (code,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    quick = code.replace("total_steps=500_000", "total_steps=20_000")
    assert quick != code
    exec(compile(quick, "README.md", "exec"), {})
    assert float(capsys.readouterr().out.split()[-1]) > 5.0


def test_the_run_file_is_valid():
    (text,) = blocks("toml")
    agent = config.build(tomllib.loads(text)).agent
    assert agent.schedule.leaves == ("learning_rate", "loss.clip_eps")
    assert agent.network.memory == ppax.networks.memories.GRU()


def test_train_commands_parse():
    commands = [line.split("#")[0] for block in blocks("sh") for line in block.splitlines()]
    parsed = 0
    for command in commands:
        words = shlex.split(command)
        if words[:2] == ["ppax", "train"] and "--help" not in words and "runs/mine/run.toml" not in words:
            options.parse_run("train", words[2:], options.add_train)
            parsed += 1
    assert parsed >= 1
