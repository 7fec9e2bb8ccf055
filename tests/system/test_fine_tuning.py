"""Fine-tuning saves steps: a solved CartPole is the start of one with other physics. Benchmark: fine_tuning.py."""

import functools

import pytest

import ppax

EVALUATED = {"eval": {"every": 1, "episodes": 64}, "stop": "eval_return >= 475"}


@functools.cache
def solved(seed):
    return ppax.build("CartPole-v1", seed=seed, log={"console": False}).fit()


def steps(seed, physics, source):
    """Steps until an evaluation first reaches 475."""
    plan = ppax.build("CartPole-v1", seed=seed, env_params=physics, log={"console": False}, **EVALUATED)
    agent, env, run = plan
    settings = {"num_steps": run.num_steps, "log": run.log, "stop": run.stop, "evaluation": run.eval}
    done = ppax.fit(agent, env, run.total_steps, seed, init_from=source, **settings)
    assert done.history[-1]["eval_return"] >= 475
    return done.env_steps


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [2000, 2001])
@pytest.mark.parametrize(
    ("physics", "share"), [({"gravity": 19.6}, 0.25), ({"gravity": 19.6, "half_length": 0.2}, 0.7)]
)
def test_a_warm_start_solves_changed_physics_in_fewer_steps(seed, physics, share):
    assert steps(seed + 100, physics, solved(seed)) <= share * steps(seed + 100, physics, None)
