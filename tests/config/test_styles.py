"""Presets `styles/*`, the algorithms of predecessors: each builds and learns CartPole."""

import pytest

from ppax import config
from ppax.run.fit import fit_run

STYLES = sorted(name for name in config.presets() if name.startswith("styles/"))


def test_all_styles_exist():
    names = ["brax", "cleanrl", "jaxagents", "jaxdem", "jaxdem_2025", "ppojax", "purejaxrl", "rl8"]
    assert [f"styles/{name}" for name in names] == STYLES


@pytest.mark.parametrize("style", STYLES)
def test_a_style_round_trips_as_a_run_file(style):
    plan = config.find(style)
    built = config.build(plan)
    assert config.build(config.describe(built.run) | {"agent": config.describe(built.agent)}) == built


@pytest.mark.nightly
@pytest.mark.parametrize("style", STYLES)
def test_a_style_learns_cartpole(style, tmp_path):
    agent, env, run = config.build(config.completed(config.find(style)).config)
    assert fit_run(agent, env, run, tmp_path / "run").evaluate(128).mean_return >= 450
