"""The five steps of CONTRIBUTING.md: its code block becomes a part that trains, sweeps and is in run files."""

import dataclasses
import importlib.util
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.core.types import Transition
from ppax.networks import mlp

ROOT = Path(__file__).parents[2]


def load(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    file = tmp_path / "discounted_return.py"
    file.write_text(re.sub(r"^ {3}", "", block, flags=re.MULTILINE))  # steps 1 and 2
    spec = importlib.util.spec_from_file_location("discounted_return", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DiscountedReturn


@pytest.mark.usefixtures("vmapped_keys")
def test_a_part_is_added_in_five_steps(tmp_path, monkeypatch):
    part = load(tmp_path)
    env = ppax.make("CartPole-v1", 4)

    def run(bonus):  # step 3: it trains, and its number can be swept
        agent = ppax.PPO(mlp(env, hidden=(8,)), advantage=part(bonus))
        return ppax.train(agent, env, ppax.start(agent, env, 8, jax.random.key(0)), 2).metrics["target_mean"]

    targets = jax.jit(jax.vmap(run))(jnp.array([0.0, 1.0]))
    assert targets[1] > targets[0] + 1.0

    monkeypatch.setitem(config.PARTS, "advantage", config.PARTS["advantage"] | {"discounted_return": part})  # step 4
    plan = {"agent": {"advantage": {"part": "discounted_return", "bonus": 0.5}}}
    assert config.build(plan).agent.advantage == part(0.5)
    assert "agent.advantage.bonus" in {option.path for option in config.options(plan)}

    # step 5: by hand. Rewards 1, 2, 4, gamma 0.5; terminated after the second step; the bootstrap value is 8.
    steps = Transition(
        **dict.fromkeys(("obs", "action", "log_prob", "valid", "first"), jnp.zeros(3)),
        carry=(),
        value=jnp.array([1.0, 1.0, 1.0]),
        reward=jnp.array([1.0, 2.0, 4.0]),
        terminated=jnp.array([False, True, False]),
        truncated=jnp.array([False, False, False]),
    )
    out = part(0.0)(steps, jnp.array([0.0, 99.0, 8.0]), 0.5)
    # 1 + 0.5 * 2 = 2; 2; 4 + 0.5 * 8 = 8
    np.testing.assert_allclose(out.value, [2.0, 2.0, 8.0])
    np.testing.assert_allclose(out.advantage, [1.0, 1.0, 7.0])
    cut = dataclasses.replace(steps, terminated=steps.truncated, truncated=steps.terminated)
    np.testing.assert_allclose(part(0.0)(cut, jnp.array([0.0, 4.0, 8.0]), 0.5).value, [1 + 0.5 * 4, 2 + 0.5 * 4, 8])
