"""Policies called in NumPy are the network itself, and their actions are distributed as it says."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.envs.hosting.arrays import HostSpec
from ppax.envs.hosting.host_env import HostEnv
from ppax.envs.hosting.stepper import Host
from ppax.networks import encoders, memories, network
from ppax.training.host import policy as policies
from ppax.training.host.numpy_program import NoNumpyVersion, NumpyProgram, Trace
from ppax.training.host.policy import CompiledPolicy, HostNumpyPolicy, PolicyInputs, make_policy
from ppax.training.host.rollouts import reset_if_needed, value_of
from ppax.training.host.tensor_collection import collector_of
from support.worlds import QUICK

pytestmark = pytest.mark.usefixtures("cached_programs")
BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
OBSERVATIONS = {
    "box": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "dict": spaces.Dict(b=spaces.Discrete(3, start=-1), a=spaces.Box(0, 255, (2, 2), np.uint8)),
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=5),
    "several": spaces.MultiDiscrete([2, 4, 3]),
    "box": BOX,
    "hybrid": spaces.Dict(z=spaces.Discrete(2), a=spaces.Tuple([BOX, spaces.MultiBinary(2)])),
}
CASES = [
    ("box", "discrete", {}),
    ("box", "discrete", {"activation": "relu", "shared": True}),
    ("box", "several", {"activation": "gelu"}),
    ("dict", "box", {"activation": "silu"}),
    ("dict", "box", {"distribution": "squashed", "state_std": True, "std_min": 0.1}),
    ("box", "box", {"distribution": "ball", "std_max": 2.0, "activation": "elu"}),
    ("dict", "hybrid", {}),
]


class Still:
    """Stepper of which only the batches matter."""

    batches, has_final_obs = (slice(0, 5), slice(5, 8)), False


def still(obs, action, mask_size=None):
    return HostEnv(Host(HostSpec(obs, action, mask_size, False, None), 8, lambda _: Still(), []), 8)


def world(obs, action, mask_size=None):
    return still(OBSERVATIONS[obs], ACTIONS[action], mask_size)


def learner_of(agent, env):
    """A learner with random numbers for parameters and statistics; nothing is compiled for it."""
    rng = np.random.default_rng(1)

    def fill(x):
        return rng.normal(0.0, 0.4, x.shape).astype(x.dtype) if x.dtype == np.float32 else np.zeros(x.shape, x.dtype)

    shapes = jax.eval_shape(lambda key: agent.init(env.observation_space, key), jax.random.key(0))
    learner = jax.tree.map(fill, shapes)
    return learner._replace(obs_stats=jax.tree.map(np.abs, learner.obs_stats))


def seen_by(env, rng, rows=8):
    space = env.observation_space
    obs = [space.sample() for _ in range(rows)]
    stacked = jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *obs)
    stacked = jax.tree.map(lambda x: x.astype(np.int32) if x.dtype == np.int64 else x, stacked)
    mask = None
    if env.host.spec.mask_size is not None:
        mask = rng.random((rows, env.host.spec.mask_size)) < 0.5
        mask[:, 0] = True
    return PolicyInputs((), stacked, np.zeros(rows, bool), mask)


@pytest.mark.parametrize(("obs", "action", "options"), CASES, ids=lambda x: str(x))
def test_the_numpy_policy_is_the_network(obs, action, options):
    env = world(obs, action, 3 if action == "discrete" else None)
    env.observation_space.seed(0)
    agent = ppax.PPO(network(env, hidden=(16, 8), **options), normalize_obs="shared" not in options)
    learner = learner_of(agent, env)
    policy = make_policy(agent, env, learner)
    assert isinstance(policy, HostNumpyPolicy)
    seen = seen_by(env, np.random.default_rng(0))
    policy.begin(agent, learner, 5, jax.random.key(3))
    jitted = jax.jit(policies._sample, compiler_options=QUICK)
    noise = jax.tree.unflatten(jax.tree.structure(policy._noise(1, np.random.default_rng(0))), policy._leaves)
    for t in (0, 4):
        own = jax.tree.map(lambda x, t=t: x[t], noise)
        want = jitted((agent, learner), seen, own)
        for rows in Still.batches:
            got = policy.act(t, rows, jax.tree.map(lambda x, rows=rows: x[rows], seen))
            for a, b in zip(jax.tree.leaves(got[1:]), jax.tree.leaves(want), strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a, b[rows], rtol=1e-6, atol=1e-6 * max(1.0, float(jnp.abs(b).max())))


def test_actions_are_distributed_as_the_network_says():
    """Frequencies of many draws against probabilities, means and standard deviations; 5 sigma."""
    env = still(OBSERVATIONS["box"], spaces.Tuple([spaces.Discrete(4), BOX]))
    agent = ppax.PPO(network(env, hidden=(8,)))
    learner = learner_of(agent, env)
    seen = seen_by(env, np.random.default_rng(0))
    policy, count = make_policy(agent, env, learner), 20_000
    policy.begin(agent, learner, count, jax.random.key(3))
    rows = slice(0, 5)
    some = jax.tree.map(lambda x: x[rows], seen)
    drawn = [policy.act(t, rows, some).action for t in range(count)]  # lists of two arrays
    choice, vector = (np.stack([one[i] for one in drawn]) for i in (0, 1))
    discrete, normal = agent.policy(learner, *some).distribution.components
    p = np.exp(discrete.log_probs)
    frequency = np.stack([(choice == i).mean(axis=0) for i in range(4)], axis=1)
    assert (np.abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / count) + 1e-9).all()
    std = np.exp(normal.log_std)
    assert (np.abs(vector.mean(axis=0) - normal.mean) < 5 * std / np.sqrt(count)).all()
    np.testing.assert_allclose(vector.std(axis=0) / std, 1.0, atol=5 / np.sqrt(2 * count))


def test_environments_that_write_into_their_actions_change_no_rollout():
    """The policy's action may be the very array that environments get."""
    env = ppax.make("gymnasium/CartPole-v1", 4)
    agent = ppax.PPO(network(env, hidden=(8,)))
    state = ppax.start(agent, env, 8, jax.random.key(0))
    policy, collect = collector_of(agent, env, state.learner)
    assert isinstance(policy, HostNumpyPolicy)
    send = env.host.send

    def overwriting(number, action):
        send(number, action)
        for leaf in action:
            leaf[:] = -1

    env.host.send = overwriting
    with env:
        actor = reset_if_needed(agent, env, state.actor, jax.random.key(1))
        policy.begin(agent, state.learner, 8, jax.random.key(2))
        rollout = collect(policy, value_of, env, actor, 8, 8, (agent, state.learner))
    assert set(np.unique(rollout.action)) <= {0, 1}


def test_deterministic_policies_take_the_mode():
    env = world("dict", "hybrid")
    agent = ppax.PPO(network(env, hidden=(8,)))
    learner, seen = learner_of(agent, env), seen_by(env, np.random.default_rng(0))
    policy = make_policy(agent, env, learner, deterministic=True)
    assert isinstance(policy, HostNumpyPolicy)
    policy.begin(agent, learner, 1, jax.random.key(3))
    got = policy.act(0, slice(0, 5), jax.tree.map(lambda x: x[:5], seen))
    want = agent.policy(learner, *seen).distribution.mode()
    for a, b in zip(jax.tree.leaves(got.action), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b[:5], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("what", ["memory", "beta", "convolution", "bfloat16", "large"])
def test_policies_that_numpy_cannot_run_faster_are_compiled(what, monkeypatch):
    monkeypatch.setattr(policies, "CompiledPolicy", lambda *arguments: "compiled")
    action = "box" if what == "beta" else "discrete"
    env = world("box", action)
    if what == "convolution":
        pixels = spaces.Box(0, 255, (16, 16, 3), np.uint8)
        env = still(pixels, ACTIONS["discrete"])
    options = {
        "memory": {"memory": memories.GRU()},
        "beta": {"distribution": "beta"},
        "convolution": {"encoder": encoders.SmallCNN()},
        "large": {"hidden": (2048, 1024)},
    }
    agent = ppax.PPO(network(env, **{"hidden": (8,)} | options.get(what, {})))
    agent = dataclasses.replace(agent, compute_dtype="bfloat16") if what == "bfloat16" else agent
    learner = jax.eval_shape(lambda key: agent.init(env.observation_space, key), jax.random.key(0))
    assert make_policy(agent, env, learner) == "compiled"


def test_grouping_streams_changes_no_compiled_action():
    """Keys go by the stream's number."""
    env = world("box", "discrete")
    agent = ppax.PPO(network(env, hidden=(8,), memory=memories.GRU()))
    learner = learner_of(agent, env)
    seen = seen_by(env, np.random.default_rng(0))._replace(carry=agent.initial_carry(8))
    policy = CompiledPolicy(agent, env, learner, deterministic=False)
    policy.begin(agent, learner, 1, jax.random.key(3))
    parts = [policy.act(2, rows, jax.tree.map(lambda x, rows=rows: x[rows], seen)).action[0] for rows in Still.batches]
    streams = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(jax.random.key(3), 2), jnp.arange(8))
    want = agent.act(learner, *seen, streams)
    np.testing.assert_array_equal(np.concatenate(parts), want.action)


def test_views_of_views_are_the_numbers_that_they_show():
    """There and back again, another shape, a spread one, a constant, and what `bind` was given."""

    def function(slow, x):
        back = (x[:, None, :].reshape(-1)[None].reshape(2, 3) + 1.0).reshape(3, 2)
        return back, jnp.squeeze(back[None]), slow.reshape(1, 6) * back.reshape(6, 1), x.reshape(1, 2, 3).reshape(2, 3)

    rng = np.random.default_rng(0)
    slow, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((6,), (2, 3)))
    program = NumpyProgram(function, slow, x)
    for scale in (1.0, 2.0):
        program.bind(np.float32(scale) * slow)
        for given in (x, np.asfortranarray(-x)):
            for found, wanted in zip(program(given), function(np.float32(scale) * slow, given), strict=True):
                assert found.shape == wanted.shape
                np.testing.assert_array_equal(found, wanted)
    with pytest.raises(NoNumpyVersion, match="permutes"):
        NumpyProgram(lambda slow, x: jax.lax.reshape(x, (6,), dimensions=(1, 0)), slow, x)


def test_transpositions_of_axes_of_size_1_are_views():
    """A swap of other axes is not."""

    def function(slow, x):
        moved = jnp.transpose(x[:, None], (1, 0, 2)) * slow
        return moved.reshape(2, 3), jnp.transpose(x[None], (2, 0, 1)), jnp.transpose(x)

    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    program = NumpyProgram(function, np.float32(1.0), x)
    program.bind(np.float32(2.0))
    for found, wanted in zip(program(x), function(np.float32(2.0), x), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_array_equal(found, wanted)
    back_and_forth = Trace(lambda x: jnp.transpose(x[:, None], (1, 0, 2)).reshape(2, 3) + 1.0, x)
    assert [operation.name for operation in back_and_forth.operations] == ["add"]


def test_parameters_are_broadcast_once_in_bind():
    """Each operation of a call has operands of one shape; those of `bind` follow its argument."""
    slow, x = np.arange(3, dtype=np.float32), np.ones((4, 3), np.float32)
    program = NumpyProgram(lambda slow, x: (x + slow[None]) * slow.reshape(1, 3), slow, x)
    for scale in (np.float32(1.0), np.float32(-2.0)):
        program.bind(scale * slow)
        np.testing.assert_array_equal(program(x)[0], (x + scale * slow) * scale * slow)
        read = [slot for _, reads, _ in program._each for slot in reads if program._values[slot] is not None]
        assert {program._values[slot].shape for slot in read} == {x.shape}


def test_calls_do_not_disturb_each_other():
    """Results of one call are other arrays than those of the next, and nothing of a call is kept."""
    program = NumpyProgram(lambda slow, x: (x * slow, x), np.float32(1.0), np.zeros(3, np.float32))
    program.bind(np.float32(2.0))
    first = program(np.ones(3, np.float32))
    kept = [id(value) for value in program._values]
    program(np.zeros(3, np.float32))
    np.testing.assert_array_equal(first[0], np.full(3, 2.0))
    assert kept == [id(value) for value in program._values]


def test_an_operation_without_counterpart_is_refused():
    with pytest.raises(NoNumpyVersion, match="sort"):
        NumpyProgram(lambda slow, x: jnp.sort(x) + slow, np.float32(1.0), np.zeros(3, np.float32))


def test_operations_on_parameters_alone_run_once_in_bind():
    program = NumpyProgram(lambda slow, x: jnp.exp(slow) * jnp.tanh(x), np.float32(1.0), np.zeros(3, np.float32))
    assert (len(program._once), len(program._each)) >= (1, 1)
    assert not {np.exp} & {step[0] for step in program._each}
    for slow in (0.0, 1.0):
        program.bind(np.float32(slow))
        x = np.array([0.1, -2.0, 3.0], np.float32)
        np.testing.assert_allclose(program(x)[0], np.exp(slow) * np.tanh(x), rtol=1e-6)
