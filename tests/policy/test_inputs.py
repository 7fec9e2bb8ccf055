"""Observations, masks and memory of `Policy.act`: forms, dtypes, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.types import ConfigError
from ppax.envs import EnvError, VectorEnv, host
from ppax.networks import memories, network
from ppax.policy.inputs import Inputs
from ppax.policy.spec import PolicySpec
from support.trained import OBSERVATIONS, env_of, observations, policy_of, random_learner, rows

RNG = np.random.default_rng(0)
GRU = memories.GRU(4)


def make(action="two", seen="vector", masked=False, **options):
    env = env_of(action, seen, masked)
    return policy_of(ppax.PPO(network(env, hidden=(4,), **options)), env)


def refusal(call) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


def test_whole_numbers_in_lists_fit_where_their_values_do():
    """Python's numbers have no dtype: an image that came as JSON is acted on as the array that it was."""
    policy = make(seen="image")
    image = np.arange(72, dtype=np.uint8).reshape(6, 6, 2)
    assert policy.act(image.tolist()) == policy.act(image)
    assert (policy.act([image.tolist()] * 2) == policy.act(np.array([image] * 2))).all()
    for wrong in (image.astype(int) + 200, image.astype(int) - 1):
        assert "obs is int64, which cannot be cast to uint8" in refusal(lambda wrong=wrong: policy.act(wrong.tolist()))


@pytest.mark.parametrize(
    ("seen", "wrong", "words"),
    [
        ("vector", np.zeros(2), "obs has the shape [2], its space [3]"),
        ("vector", np.zeros((5, 2)), "obs has the shape [5, 2], its space [5, 3]"),
        ("vector", np.zeros((2, 5, 3)), "obs has the shape [2, 5, 3], its space [3]"),
        ("vector", 1.0, "obs has the shape [], its space [3]"),
        ("vector", np.zeros(3, complex), "obs is complex128, which cannot be cast to float32, the dtype of its space"),
        ("vector", ["a", "b", "c"], "obs is <U1, which cannot be cast to float32"),
        ("vector", None, "obs is a NoneType, not an array float32[3]"),
        ("vector", {"a": np.zeros(3)}, "obs is a dict, not an array float32[3]"),
        ("vector", np.zeros((0, 3)), "obs is an empty batch"),
        ("image", np.zeros((6, 6, 2)), "obs is float64, which cannot be cast to uint8, the dtype of its space"),
        ("dict", {"vector": np.zeros(2)}, "obs has the entries ['vector'], and its space"),
        ("dict", np.zeros(2), "obs is a ndarray, and its space a Dict: a dict"),
        ("tuple", (np.zeros(2), np.zeros(3, np.int8)), "obs[1] has the shape [3], its space [2]"),
    ],
)
def test_what_does_not_belong_to_the_space_is_refused(seen, wrong, words):
    message = refusal(lambda: make(seen=seen).act(wrong))
    assert message.startswith(words), message
    assert "batch" in message


def test_the_message_is_that_of_training():
    """An environment that returns the same wrong observation in training: the same sentence."""
    import gymnasium

    class Wrong(gymnasium.Env):
        observation_space, action_space = OBSERVATIONS["vector"], spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.zeros(2, np.float32), 0.0, False, False, {}

    with pytest.raises(EnvError) as caught, host(Wrong, 1) as env:
        env.host.reset([0])
    sentence = "has the shape [2], its space [3]"
    assert sentence in str(caught.value)
    assert sentence in refusal(lambda: make().act(np.zeros(2, np.float32)))


def test_lists_numbers_and_other_dtypes_are_read_as_training_reads_them():
    policy = make()
    exact = np.float32([0.1, -0.2, 0.3])
    for other in ([0.1, -0.2, 0.3], np.float64([0.1, -0.2, 0.3]), jnp.asarray(exact), exact[::-1][::-1]):
        assert policy.act(other) == policy.act(exact)
    assert policy.act([1, 0, 2]) == policy.act(np.float32([1.0, 0.0, 2.0]))
    kind = make(seen="kind")
    assert kind.act(3) == kind.act(np.int64(3)) == kind.act(np.array([3, 4]))[0]


@pytest.mark.parametrize("action", ["two", "ragged", "bits", "wide", "hybrid", "nested"])
def test_actions_have_the_form_and_dtype_of_the_space(action):
    policy = make(action)
    space = policy.spec.action_space
    one = policy.act(np.zeros(3))
    assert space.contains(one), one
    batch = policy.act(np.zeros((3, 3)))
    assert [space.contains(rows(batch, i)) for i in range(3)] == [True] * 3
    dtypes = jax.tree.map(lambda x: np.asarray(x).dtype, (one, batch, space.sample()))
    assert jax.tree.leaves(dtypes[0]) == jax.tree.leaves(dtypes[1])
    assert set(jax.tree.leaves(dtypes[0])) == {np.asarray(x).dtype for x in jax.tree.leaves(dict_of(space.sample()))}


def dict_of(x):
    """OrderedDicts of Gymnasium as dicts."""
    return {k: dict_of(y) for k, y in x.items()} if isinstance(x, dict) else x


def test_results_are_the_user_s_own():
    """A result stays what it is when the next action is computed, and writing to it changes nothing."""
    policy = make("wide")
    one = policy.act(np.zeros(3))
    before = one.copy()
    policy.act(np.ones(3))
    np.testing.assert_array_equal(one, before)
    one[:] = 7.0
    np.testing.assert_array_equal(policy.act(np.zeros(3)), before)


def test_batches_of_every_size_give_the_actions_of_each_observation():
    policy = make("wide")
    obs = RNG.normal(size=(9, 3)).astype(np.float32)
    each = np.stack([policy.act(one) for one in obs])
    for size in range(1, 10):
        np.testing.assert_allclose(policy.act(obs[:size]), each[:size], rtol=1e-5, atol=1e-6)
    assert len(policy._programs) == 5  # 1, 2, 4, 8 and 16 streams


def test_a_mask_is_required_where_training_had_one():
    policy = make("ragged", masked=True)
    assert "trained with action masks" in refusal(lambda: policy.act(np.zeros(3)))
    assert "trained with action masks" in refusal(lambda: policy.step((), jnp.zeros((1, 3)), jnp.ones(1, bool)))
    only = np.zeros(9, bool)
    only[[2, 4, 8]] = True
    assert policy.act(np.zeros(3), mask=only).tolist() == [2, 6, 2]
    parts = (only[:3], only[3:5], only[5:])
    assert policy.act(np.zeros(3), mask=parts).tolist() == [2, 6, 2]
    assert policy.act(np.zeros((2, 3)), mask=np.stack([only, only])).tolist() == [[2, 6, 2]] * 2
    assert policy.act(np.zeros((2, 3)), mask=tuple(np.stack([x, x]) for x in parts)).tolist() == [[2, 6, 2]] * 2
    assert "mask has shape (8,) in one stream" in refusal(lambda: policy.act(np.zeros(3), mask=np.ones(8, bool)))
    assert "mask has the shape [18]; must begin with [2]" in refusal(
        lambda: policy.act(np.zeros((2, 3)), mask=np.ones(18, bool))
    )


def test_a_mask_may_be_given_where_training_had_none():
    policy = make()
    for allowed in ([True, False], [False, True]):
        assert policy.act(np.zeros(3), mask=allowed) == 1 + allowed.index(True)


def test_memory_is_kept_and_reset_where_it_is_told():
    policy, obs = make("box", memory=GRU, distribution="squashed"), RNG.normal(size=(3, 3, 3)).astype(np.float32)
    first = policy.act(obs[0])
    later = policy.act(obs[0])
    assert (np.abs(later - first).reshape(3, -1).max(1) > 1e-4).all()
    policy.reset(np.array([True, False, True]))
    third = policy.act(obs[0])
    np.testing.assert_allclose(third[[0, 2]], first[[0, 2]], rtol=1e-6)
    assert np.abs(third[1] - first[1]).max() > 1e-4
    policy.reset()
    np.testing.assert_allclose(policy.act(obs[0]), first, rtol=1e-6)


def test_a_batch_of_another_size_needs_a_reset_where_there_is_memory():
    policy = make(memory=GRU)
    policy.act(np.zeros((3, 3)))
    assert "obs has 2 observations, and the memory is of 3" in refusal(lambda: policy.act(np.zeros((2, 3))))
    assert "where has the shape [2]" in refusal(lambda: policy.reset(np.zeros(2, bool)))
    policy.reset()
    policy.act(np.zeros((2, 3)))
    feedforward = make()
    feedforward.act(np.zeros((3, 3)))
    feedforward.act(np.zeros((2, 3)))
    feedforward.reset(np.zeros(7, bool))  # nothing to reset


def test_step_in_a_scan_is_act():
    """The pure form inside `jit` and `scan`, with the start of an episode in the middle."""
    policy, steps, streams = make("hybrid", "dict", memory=GRU), 5, 3
    obs = observations(OBSERVATIONS["dict"], RNG, (steps, streams))
    first = np.zeros((steps, streams), bool)
    first[0], first[2, 1] = True, True

    @jax.jit
    def run(obs):
        def one(carry, step):
            out = policy.step(carry, *step)
            return out.carry, (out.action, out.log_prob)

        return jax.lax.scan(one, policy.initial_carry(streams), (obs, first))[1]

    actions, log_probs = run(obs)
    assert log_probs.shape == (steps, streams)
    for t in range(steps):
        policy.reset(first[t])
        acted = policy.act(rows(obs, t))
        np.testing.assert_array_equal(acted["kind"], actions["kind"][t])
        np.testing.assert_allclose(acted["where"], actions["where"][t], rtol=1e-5, atol=1e-6)


def test_step_with_a_key_samples_as_training_acts():
    env = env_of("ragged")
    agent = ppax.PPO(network(env, hidden=(4,)))
    learner = random_learner(agent, env)
    policy, key = policy_of(agent, env, learner), jax.random.key(4)
    obs, first = jnp.zeros((6, 3)), jnp.ones(6, bool)
    out = policy.step((), obs, first, key=key)
    own = agent.act(learner, (), obs, first, None, jax.random.clone(key))
    np.testing.assert_array_equal(out.action, own.env_action)
    np.testing.assert_allclose(out.log_prob, own.log_prob, rtol=1e-6)


def test_the_specification_says_what_the_policy_takes():
    text = str(make("ragged", "dict", masked=True, memory=GRU).spec)
    for words in ("'vector': float32[2]", "integers from [0, 5, -1]", "required", "4 numbers for each stream", "Own"):
        assert words in text, text
    assert "Own: float32[3]; integer from 1 to 2" in repr(make())


def test_entries_that_only_the_critic_reads_may_be_left_out():
    env = ppax.make("Pursuit-2", 3, agent_ids=True, central_critic=True)
    agent = ppax.PPO(network(env, hidden=(4,)))
    policy = policy_of(agent, env)
    assert policy.spec.unread == ("joint",)
    full = observations(env.observation_space, RNG, (4,))
    own = {name: full[name] for name in ("own", "agent")}
    np.testing.assert_array_equal(policy.act(own), policy.act(full))
    assert policy.act(rows(own, 0)) == policy.act(rows(full, 0))
    assert "obs has the entries ['own']" in refusal(lambda: policy.act({"own": own["own"]}))
    assert "'joint' may be left out" in str(policy.spec)


def test_evaluation_is_that_of_the_run():
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(network(env, hidden=(4,)))
    learner = random_learner(agent, env)
    policy = policy_of(agent, env, learner)
    own = ppax.evaluate(agent, env, learner, ppax.training.evaluation.evaluation_key(5), episodes=8)
    np.testing.assert_array_equal(policy.evaluate(env, episodes=8, seed=5).returns, own.returns)
    with pytest.raises(ConfigError, match="made for another environment"):
        policy.evaluate(VectorEnv(env_of().env, 4))


OF_SPACES = {
    "category": (spaces.Discrete(5), np.array(3), np.array(99), "obs is 99; must be one of the categories 0 to 4"),
    "categories": (spaces.MultiDiscrete([3, 4]), np.array([1, 2]), np.array([1, -7]), r"obs\[1\] is -7"),
    "nan": (
        spaces.Box(-1, 1, (3,)),
        np.zeros(3, np.float32),
        np.float32([0, np.nan, 0]),
        r"obs\[1\] is nan; must be f",
    ),
    "overflow": (spaces.Box(-1, 1, (2,)), np.zeros(2), np.array([0.0, 1e300]), r"obs\[1\] is 1e\+300; must be finite"),
    "int64": (spaces.Box(0, 9, (2,), np.int64), np.array([1, 2]), np.array([2**40, 2]), r"obs\[0\] is 1099511627776"),
    "dict": (
        spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (1,))),
        {"a": 1, "b": np.zeros(1)},
        {"a": 3, "b": np.zeros(1)},
        r"obs\['a'\] is 3; must be one of the categories 0 to 2",
    ),
}


@pytest.mark.parametrize("case", OF_SPACES)
def test_numbers_that_the_policy_does_not_take_are_refused_in_every_call(case):
    space, good, bad, words = OF_SPACES[case]
    spec = PolicySpec(space, spaces.Discrete(2))
    agent = ppax.PPO(network(spec, hidden=(4,)))
    policy = ppax.Policy(agent, agent.init(space, jax.random.key(0)), spec)
    for _ in range(2):  # at first, and where the dtype is known
        with pytest.raises(ConfigError, match=words):
            policy.act(bad)
        assert policy.act(good) in (0, 1)
    batch = jax.tree.map(lambda *x: np.stack(x), good, bad)
    with pytest.raises(ConfigError, match=words.partition(r"\[")[0].partition(" ")[0]):
        policy.act(batch)
    large = {"int64", "category", "categories", "dict"}
    if case in large:
        with pytest.raises(ConfigError):
            policy.step((), jax.tree.map(lambda x: np.asarray(x)[None], bad), jnp.ones(1, bool))


def test_whole_numbers_beyond_32_bits_are_read_as_float32():
    """2^32 + 7 is not 7: the actions are those of a space of float32."""
    actions = []
    for dtype in (np.int64, np.float32):
        space = spaces.Box(-(2.0**40), 2.0**40, (2,), dtype)
        spec = PolicySpec(space, spaces.Box(-1, 1, (1,)))
        agent = ppax.PPO(network(spec, hidden=(4,), policy_gain=1.0))
        policy = ppax.Policy(agent, agent.init(space, jax.random.key(0)), spec)
        given = np.array([[2**32 + 7, 0], [7, 0]])
        acted = policy.act(given.astype(dtype))
        stepped = policy.step((), given.astype(dtype), jnp.ones(2, bool)).action
        np.testing.assert_allclose(acted, stepped, atol=1e-6)
        actions.append(acted)
    np.testing.assert_array_equal(*actions)
    assert actions[0][0] != actions[0][1]


def test_entries_of_masks_and_resets_are_true_or_false():
    """Those of logits are all True as truth values."""
    policy = make(masked=True)
    obs = np.zeros(3)
    for mask in ([0.0, -np.inf], [2, 0], ["a", "b"], [np.nan, 1]):
        assert "mask has the entry" in refusal(lambda mask=mask: policy.act(obs, mask=mask))
    np.testing.assert_array_equal(policy.act(obs, mask=[0, 1.0]), policy.act(obs, mask=[False, True]))
    with pytest.raises(ConfigError, match="mask has the entry -inf"):
        policy.step((), obs[None], jnp.ones(1, bool), np.array([[0.0, -np.inf]]))
    remembering = make(memory=GRU)
    remembering.act(np.zeros((2, 3)))
    assert "where has the entry 2" in refusal(lambda: remembering.reset([2, 0]))  # indices


def test_a_carry_of_another_batch_or_policy_is_refused():
    policy = make(memory=GRU)
    carry, obs, first = policy.initial_carry(2), jnp.zeros((2, 3)), jnp.ones(2, bool)
    policy.step(carry, obs, first)
    for wrong in (policy.initial_carry(3), (), jnp.zeros((2, 5)), jax.tree.map(lambda x: x.astype(int), carry)):
        assert "carry: not the memory of 2 streams" in refusal(lambda wrong=wrong: policy.step(wrong, obs, first))
    assert "carry" in refusal(lambda: make().step(carry, obs, first))


@ppax.part
class Hollow:
    """Environment with entries that have no element, at several depths."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (0, 6, 3), np.uint8),
            "inner": spaces.Dict({"none": spaces.Box(-1.0, 1.0, (0,)), "all": spaces.Tuple(())}),
            "matrix": spaces.Box(-1.0, 1.0, (3, 0)),
            "vector": spaces.Box(-1.0, 1.0, (2,)),
        }
    )
    action_space = spaces.Discrete(3)
    num_agents = None

    def reset(self, key):
        return ppax.core.types.EnvReset(jnp.int32(0), jax.tree.map(jnp.asarray, HOLLOW))


HOLLOW = Hollow.observation_space.sample()


@pytest.mark.parametrize("options", [{}, {"memory": GRU}])
def test_entries_without_an_element_can_be_acted_on_and_exported(tmp_path, options):
    env = VectorEnv(Hollow(), 2)
    policy = policy_of(ppax.PPO(network(env, hidden=(4,), **options)), env)
    one = policy.act(HOLLOW)
    assert env.action_space.contains(one)
    policy.reset()
    three = policy.act(jax.tree.map(lambda x: np.stack([x] * 3), HOLLOW))
    assert three.tolist() == [one] * 3
    policy.export(tmp_path / "policy.zip", formats=("numpy", "stablehlo"))  # compares actions


@pytest.mark.parametrize("actions", [2, 3])
def test_masks_of_agents_may_be_lists(actions):
    """A list is one mask, and not a tree of numbers: with two agents and two actions it would be transposed."""
    box = spaces.Box(-1.0, 1.0, (3,))
    spec = PolicySpec(box, spaces.Discrete(actions), masked=True, num_agents=2, names=("a", "b"))
    inputs = Inputs(spec)
    read = inputs.observations({"a": np.zeros(3), "b": np.zeros(3)})
    masks = {"a": [True] + [False] * (actions - 1), "b": [True] * actions}
    found = inputs.masks(masks, read)
    np.testing.assert_array_equal(found, [masks["a"], masks["b"]])
    np.testing.assert_array_equal(found, inputs.masks({name: np.array(x) for name, x in masks.items()}, read))
