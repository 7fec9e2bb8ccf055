"""Host training on two devices of the compiled programs, with a policy that is a compiled call on one of them."""

import jax
import numpy as np
import pytest

import ppax
from ppax.networks import memories, network
from ppax.training.host.policy import CompiledPolicy

pytestmark = [
    pytest.mark.usefixtures("cached_programs"),
    pytest.mark.skipif(len(jax.devices()) < 2, reason="needs two devices"),
]
STEPS = 16


def parts():
    env = ppax.make("gymnasium/CartPole-v1", 4)
    agent = ppax.PPO(
        network(env, hidden=(8,), memory=memories.GRU(8)),
        seq_len=8,
        num_epochs=1,
        minibatch=ppax.minibatches.Shuffle(num_minibatches=2),
        program=ppax.Program(devices=2),
    )
    return agent, env


def test_training_compiled_from_a_state_on_two_devices_equals_that_from_shapes():
    """`ppax.compile` reads shapes alone: the policy's program is for one device, wherever the given state lies."""
    learners = []
    for given in ("state", "shapes"):
        agent, env = parts()
        state = ppax.start(agent, env, STEPS, jax.random.key(0))
        assert len(jax.tree.leaves(state.learner)[0].sharding.device_set) == 2
        shapes = jax.eval_shape(lambda agent=agent, env=env: ppax.start(agent, env, STEPS, jax.random.key(0)))
        program = ppax.compile(agent, env, state if given == "state" else shapes)
        assert isinstance(program.policy, CompiledPolicy)
        with env:
            learners.append(program(agent, env, state, 2).state.learner)
    for one, other in zip(*map(jax.tree.leaves, learners), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_run_on_two_devices_is_resumed(tmp_path):
    agent, env = parts()
    with env:
        ppax.fit(agent, env, 4 * STEPS, run_dir=tmp_path / "run", num_steps=STEPS)
    resumed = ppax.resume(tmp_path / "run", total_steps=8 * STEPS)
    assert int(resumed.state.iteration) == 2
