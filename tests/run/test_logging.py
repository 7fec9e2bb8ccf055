"""Columns of time and memory."""

import pytest

import ppax
from ppax.config import Log
from ppax.envs import host
from ppax.networks import network
from support.wins import HostWins


@pytest.mark.parametrize("kind", ["native", "host"])
def test_times_of_a_row_add_up(kind):
    env = ppax.make("CartPole-v1", 4) if kind == "native" else host(HostWins, 4)
    agent = ppax.PPO(network(env, hidden=(4,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1))
    run = ppax.fit(agent, env, 5 * 32, num_steps=8, log=Log(every=2, console=False))
    before, steps = 0.0, 0
    for row, iterations in zip(run.history, (2, 2, 1), strict=True):
        assert row["iteration_ms"] == pytest.approx(1e3 * (row["seconds"] - before) / iterations)
        assert row["steps_per_second"] == pytest.approx((row["env_steps"] - steps) / (row["seconds"] - before))
        assert row["compile_seconds"] == run.compile_seconds > 0.0
        assert row["memory_mb"] > 50.0
        before, steps = row["seconds"], row["env_steps"]
        if kind == "host":
            assert row["collect_ms"] + row["update_ms"] == pytest.approx(row["iteration_ms"])
            assert 0.0 < row["collect_ms"] < row["iteration_ms"]
        else:
            assert not {"collect_ms", "update_ms"} & row.keys()
    getattr(env, "close", lambda: None)()


def test_the_time_of_collecting_is_a_metric_of_environments_on_the_host_alone():
    env = ppax.make("CartPole-v1", 4)
    with pytest.raises(ppax.ConfigError, match="no metric 'collect_ms' is logged"):
        ppax.fit(ppax.PPO(network(env, hidden=(4,))), env, 512, stop="collect_ms >= 1")
