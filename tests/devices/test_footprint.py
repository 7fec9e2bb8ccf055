"""Minimum memory of a run, from shapes: arithmetic by hand; runs that cannot fit are refused early."""

import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.cli import main
from ppax.devices import footprint
from ppax.devices.footprint import Footprint, NotEnoughMemory, explaining_memory
from ppax.devices.layout import Program
from ppax.networks import mlp
from ppax.run import restore
from ppax.run.restore import require_memory

ENVS, STEPS = 6, 10


def shapes(num_envs=ENVS, num_steps=STEPS):
    env = ppax.make("CartPole-v1", num_envs)
    agent = ppax.PPO(mlp(env, (8,)))
    return agent, env, jax.eval_shape(lambda: ppax.start(agent, env, num_steps, jax.random.key(0)))


def test_sizes_by_hand():
    """One hidden layer of 8 on 4 inputs, two actions and a value; Adam has two moments for every weight."""
    _, _, state = shapes()
    weights = 2 * (4 * 8 + 8) + (8 * 2 + 2) + (8 * 1 + 1)  # separate towers of policy and value
    needed = footprint.footprint(state)
    assert 3 * 4 * weights <= needed.learner <= 3 * 4 * weights + 64  # counters and other scalars
    # observations of 4 numbers; reward, value, log-probability, trace of 4 bytes each and four flags
    assert needed.rollout == STEPS * ENVS * (4 * 4 + 20)
    assert footprint.footprint(state, devices=2) == needed._replace(learner=2 * needed.learner)
    assert needed.total == needed.learner + needed.environments + needed.rollout


def test_footprint_is_a_lower_bound_of_the_programs_memory():
    """Compare with XLA's memory analysis: arguments plus temporary memory."""
    agent, env, state = shapes(64, 128)
    needed = footprint.footprint(state)
    said = jax.jit(ppax.train).lower(agent, env, state, 1, 1).compile().memory_analysis()
    assert needed.total <= said.argument_size_in_bytes + said.temp_size_in_bytes
    assert needed.learner + needed.environments >= 0.9 * said.argument_size_in_bytes


@pytest.mark.parametrize(
    ("sizes", "advice"),
    [
        (["--num-envs", str(10**12)], "lower num_steps, or num_envs, as to "),
        (["--num-steps", str(10**10)], "lower num_steps, or num_envs;"),
        (["--agent.network.hidden", "400000", "400000"], "lower the widths of agent.network"),
    ],
)
@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium/CartPole-v1"])
def test_a_run_that_cannot_fit_is_refused_before_its_directory_is_created(tmp_path, capsys, env, sizes, advice):
    run = tmp_path / "run"
    assert main.main(["train", env, *sizes, "--run-dir", str(run), "--no-cache"]) == 4
    err = capsys.readouterr().err
    assert "memory" in err
    assert "Traceback" not in err
    assert not run.exists()
    if env == "CartPole-v1":
        assert advice in err.strip() + ";"


def test_the_advised_num_envs_fits(monkeypatch):
    agent, env, state = shapes(1000, 16)
    monkeypatch.setattr(footprint, "available_bytes", lambda: 300_000)
    with pytest.raises(NotEnoughMemory) as caught:
        require_memory(agent, env, state)
    advised = int(str(caught.value).rpartition("as to ")[2].replace(",", ""))
    assert 10 < advised < 1000
    require_memory(*shapes(advised, 16))


def test_accelerators_share_environments_and_rollout(monkeypatch):
    """Each has a copy of the learner, and its own memory is the limit."""
    agent, env, state = shapes(4096, 128)
    agent = dataclasses.replace(agent, program=Program(devices=2))
    whole = footprint.footprint(state)
    half = whole.learner + (whole.environments + whole.rollout) // 2
    monkeypatch.setattr(restore.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(restore, "num_devices", lambda agent, *_: agent.program.devices)
    monkeypatch.setattr(footprint, "available_bytes", lambda: half + 1)
    needed = require_memory(agent, env, state)
    assert half - 1 <= needed.total <= half
    assert str(needed).endswith(" on each of 2 devices")
    monkeypatch.setattr(footprint, "available_bytes", lambda: half - 2)
    with pytest.raises(NotEnoughMemory, match="on each of 2 devices"):
        require_memory(agent, env, state)
    with pytest.raises(NotEnoughMemory, match=r"[^s]\); "):
        require_memory(dataclasses.replace(agent, program=Program(devices=1)), env, state)


def test_more_rows_than_int32_can_index_are_refused(monkeypatch):
    monkeypatch.setattr(footprint, "available_bytes", lambda: 2**60)
    with pytest.raises(ppax.ConfigError, match="at most 2,147,483,647"):
        require_memory(*shapes(2**16, 2**16))


def test_out_of_memory_errors_carry_the_sizes_of_the_run():
    needed = Footprint(1000, 2_000_000, 3_000_000_000)
    for error in (MemoryError(), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes")):
        text = "weights and optimiser 1 kB, environments 2 MB, a rollout 3 GB"
        with pytest.raises(NotEnoughMemory, match=text), explaining_memory(needed):
            raise error
    with pytest.raises(jax.errors.JaxRuntimeError, match="another"), explaining_memory(needed):
        raise jax.errors.JaxRuntimeError("INTERNAL: another")


def test_out_of_memory_in_xla_exits_with_code_4(tmp_path, monkeypatch, capsys):
    """A run above the lower bound for which XLA itself runs out of memory."""

    def exhaust(*_):
        jnp.zeros((2**45,), jnp.float32).block_until_ready()

    monkeypatch.setattr(ppax.training.backends, "compile", exhaust)
    assert main.main(["train", "CartPole-v1", "--run-dir", str(tmp_path / "run"), "--no-cache"]) == 4
    assert "memory is exhausted: RESOURCE_EXHAUSTED" in capsys.readouterr().err


def test_available_memory_respects_container_limits(tmp_path, monkeypatch):
    free = footprint.available_bytes()
    assert free is None or 2**26 < free < 2**50
    if free is None or not os.path.exists("/proc/self/cgroup"):
        pytest.skip("nothing says how much memory there is")
    group = tmp_path / "job"
    group.mkdir()
    monkeypatch.setattr(footprint, "_groups", lambda: [group, tmp_path])
    (tmp_path / "memory.max").write_text("max\n")
    (group / "memory.max").write_text("12345678\n")
    assert footprint.available_bytes() == 12345678


def test_train_prints_the_minimum_memory_of_the_run(tmp_path, capsys):
    arguments = [
        "--num-envs",
        "2",
        "--num-steps",
        "4",
        "--total-steps",
        "8",
        "--eval.episodes",
        "1",
        "--no-log.console",
    ]
    run = ["train", "CartPole-v1", *arguments, "--agent.num-epochs", "1", "--run-dir", str(tmp_path / "run")]
    assert main.main([*run, "--no-cache", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "memory, at least: weights and optimiser" in err
    assert json.loads(out)["iterations"] == 1
    assert np.isfinite(json.loads(out)["mean_return"])
