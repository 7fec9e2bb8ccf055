"""README: its Python blocks run, its commands parse, it is short; the run file of docs/run_files.md builds."""

import re
import shlex
import tomllib
from pathlib import Path

import ppax
from ppax import config
from ppax.cli import options

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RUN_FILES = (ROOT / "docs" / "run_files.md").read_text()


def blocks(language, text=README):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_python_blocks_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    code = "\n".join(blocks("python"))
    monkeypatch.chdir(tmp_path)
    quick = re.sub(r"total_steps=[\d_]+", "total_steps=20_000", code).replace("states, 96)", "states, 2)")
    assert quick.count("20_000") == 2
    assert "states, 2)" in quick
    names = {}
    exec(compile(quick, "README.md", "exec"), names)
    score, action, *_ = capsys.readouterr().out.split()
    assert float(score) > 5.0
    assert action in ("0", "1")
    assert names["metrics"]["episode_return"].shape == (64,)
    assert int(names["run"].env_steps) > 0


def test_the_run_file_is_valid():
    text = blocks("toml", RUN_FILES)[0]
    agent = config.build(tomllib.loads(text)).agent
    assert agent.schedule.leaves == ("learning_rate", "loss.clip_eps")
    assert agent.network.memory == ppax.networks.memories.GRU()


def test_train_commands_parse():
    commands = [
        line.split("#")[0]
        for text in (README, RUN_FILES)
        for block in blocks("sh", text)
        for line in block.splitlines()
    ]
    parsed = 0
    for command in commands:
        words = shlex.split(command)
        files = [word for word in words if word.endswith((".toml", ".yaml"))]
        if words[:2] == ["ppax", "train"] and "--help" not in words and not files:
            options.parse_run("train", words[2:], options.add_train)
            parsed += 1
    assert parsed >= 2


def test_readme_is_short_and_has_the_two_commands():
    assert len(README.splitlines()) <= 90
    first = blocks("sh")[0]
    assert "pip install -e . && ppax train CartPole-v1 " in first
    assert 'pip install -e ".[test]" && pytest ' in first
