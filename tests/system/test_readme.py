"""README: its Python blocks run, its commands parse, it is short; the run file of docs/run_files.md builds."""

import json
import re
import shlex
import statistics
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


def medians(name, title):
    content = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    (panel,) = (panel for panel in content["panels"] if panel["title"].startswith(title))
    values = [bar["median"] for bar in panel["bars"]]
    return f"{min(values):.1f} to {max(values):.1f} times"


def test_the_speed_that_readme_and_the_first_page_claim_is_the_measured_one():
    pages = README, (ROOT / "docs" / "index.md").read_text()
    for name in ("speed", "speed_jax_0.12"):
        speed = medians(name, "steps/s over the faster peer's")
        assert all(speed in page for page in pages), speed
    assert f"a compilation that takes {medians('speed', 'compile time')} as long" in README


def test_the_seconds_to_a_score_that_the_readme_claims_are_the_measured_ones():
    runs = json.loads((ROOT / "benchmarks" / "results" / "time_to_score.json").read_text())["tasks"]["CartPole"]
    ours, theirs = (statistics.median(run[name]["seconds"] for run in runs) for name in ("ppax", "sb3"))
    claim = re.search(r"a mean return of 475 on CartPole (\d+) s .*?Stable-Baselines3: (\d+) s", README)
    assert claim.groups() == (f"{ours:.0f}", f"{theirs:.0f}")
