"""Composed network: inputs and memory of each torso, and training of all kinds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.core.types import EnvReset, EnvStep, Targets, Transition
from ppax.devices.layout import Program
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.networks import Tower, adapters, encoders, memories, mlp, network
from ppax.ppo import batches
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import collect
from support.worlds import QUICK, Counter

SMALL = {
    "gru": memories.GRU(6),
    "lstm": memories.LSTM(6),
    "mingru": memories.MinGRU(6),
    "lru": memories.LRU(6),
    "attention": memories.Attention(6, steps=3, heads=2),
    "window": memories.Window(steps=3, hidden=(6,)),
    "stack": memories.Stack(memories.LSTM(6), 2, residual=True, norm=True),
}
CARTPOLE = VectorEnv(TimeLimit(builtin.CartPole(), 5), 4)
DICT = spaces.Dict(
    {
        "secret": spaces.Box(-1.0, 1.0, (2,)),
        "seen": spaces.Dict({"place": spaces.Discrete(3, start=1), "speed": spaces.Box(-1.0, 1.0, (2,))}),
        "image": spaces.Box(0, 255, (6, 5, 2), np.uint8),
    }
)


@ppax.part
class Gallery:
    """Environment with a Dict observation of all kinds; the reward is for choosing the action equal to the place."""

    num_agents = None
    observation_space = DICT
    action_space = spaces.Discrete(3)

    def reset(self, key):
        return EnvReset((key, jnp.int32(0)), self._obs(key))

    def step(self, state, action, key):
        before, time = state
        reward = (action == self._obs(before)["seen"]["place"] - 1).astype(jnp.float32)
        return EnvStep((key, time + 1), self._obs(key), reward, jnp.zeros((), bool), time >= 4)

    def _obs(self, key):
        keys = jax.random.split(jax.random.clone(key), 4)
        return {
            "secret": jax.random.normal(keys[0], (2,)),
            "seen": {"place": jax.random.randint(keys[1], (), 1, 4), "speed": jax.random.normal(keys[2], (2,))},
            "image": jax.random.randint(keys[3], (6, 5, 2), 0, 256).astype(jnp.uint8),
        }


class World:
    def __init__(self, observation_space, action_space=None):
        self.observation_space, self.action_space = observation_space, action_space or spaces.Discrete(3)


def example(space=DICT, seed=0):
    space.seed(seed)
    return jax.tree.map(jnp.asarray, space.sample())


def forward(net, params, obs):
    """Return logits and value of one observation at an episode's start."""
    row = lambda x: x[None]  # noqa: E731
    memory = net.remember(params, net.initial_carry(), jax.tree.map(row, net.encode(params, obs)), jnp.ones(1, bool))
    out = net.decide(params, jax.tree.map(lambda x: x[0], memory.features), None)
    return np.asarray(out.distribution.logits), np.asarray(out.value)


# ---------------------------------------------------------------- inputs of the towers


@pytest.mark.parametrize("memory", [memories.NoMemory(), memories.GRU(6)], ids=["none", "gru"])
def test_critic_only_observations_do_not_reach_the_actor(memory):
    reads = {"actor_obs": ("seen", "image"), "critic_obs": ("secret", "seen.place")}
    net = network(World(DICT), memory=memory, hidden=(8,), **reads)
    params = jax.jit(net.init, compiler_options=QUICK)(jax.random.key(0))
    obs, other = example(), example(seed=1)
    logits, value = forward(net, params, obs)
    for name, reaches_actor, reaches_critic in (("secret", False, True), ("image", True, False)):
        moved = obs | {name: other[name]}
        new_logits, new_value = forward(net, params, moved)
        assert (np.abs(new_logits - logits).max() > 0) == reaches_actor
        assert (np.abs(new_value - value).max() > 0) == reaches_critic
    speed = obs | {"seen": obs["seen"] | {"speed": other["seen"]["speed"]}}  # of "seen" the critic reads only the place
    assert np.abs(forward(net, params, speed)[1] - value).max() == 0


def test_head_hidden_layers_are_separate_for_policy_and_value():
    """Compare with a computation by hand, also after PopArt's rescaling of the value."""
    net = network(CARTPOLE, hidden=(8,), head_hidden=(5,), activation="relu", shared=True)
    params = jax.jit(net.init, compiler_options=QUICK)(jax.random.key(0))
    params = net.rescale_value(params, 2.0, 1.0)
    x = np.random.default_rng(0).normal(size=8).astype(np.float32)
    out = net.decide(params, {"actor": x}, None)
    found = {"policy": out.distribution.logits, "value": out.value}
    for name, value in found.items():
        head = jax.tree.map(np.asarray, params[name])
        behind = np.maximum(x @ head["0"]["kernel"] + head["0"]["bias"], 0.0)
        expected = behind @ head["kernel"] + head["bias"]
        expected -= np.log(np.exp(expected).sum()) if name == "policy" else 0.0
        got = value - (jax.nn.logsumexp(value) if name == "policy" else 0.0)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert float(head["bias"][0]) == 1.0


def test_dict_observation_is_the_concatenation_of_its_entries():
    """Compare with a computation by hand: pixels / 255, the place one-hot from 1, in the order of the space's keys."""
    net = network(World(DICT), encoder=encoders.Flat(), hidden=())
    obs = example()
    place = int(obs["seen"]["place"])
    parts = [np.asarray(obs["image"]).ravel() / 255, obs["secret"], np.eye(3)[place - 1], obs["seen"]["speed"]]
    params = jax.jit(net.init, compiler_options=QUICK)(jax.random.key(0))
    features = net.encode(params, obs)["actor"]
    assert features.shape == (60 + 2 + 3 + 2,)
    np.testing.assert_allclose(features, np.concatenate(parts), rtol=1e-6)


@pytest.mark.parametrize(
    ("space", "obs", "numbers"),
    [
        (spaces.Discrete(3, start=-1), 1, [0, 0, 1]),
        (spaces.MultiDiscrete([2, 3], start=[0, 5]), [1, 6], [0, 1, 0, 1, 0]),
        (spaces.MultiBinary((2, 2)), [[1, 0], [0, 1]], [1, 0, 0, 1]),
        (spaces.Box(0, 255, (2,), np.uint8), [51, 255], [0.2, 1]),
        (spaces.Box(0, 9, (2,), np.uint8), [5, 9], [5, 9]),  # uint8, but no image
        (spaces.Box(-9, 9, (1, 2), np.int32), [[-3, 7]], [-3, 7]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, ())]), (0, 0.5), [1, 0, 0.5]),
    ],
    ids=str,
)
def test_preprocessing_of_every_kind_of_space(space, obs, numbers):
    net = network(World(space), hidden=())
    obs = tuple(map(jnp.asarray, obs)) if isinstance(obs, tuple) else jnp.asarray(np.asarray(obs, space.dtype))
    features = net.encode({"actor": {}, "critic": {}, "policy": {"kernel": jnp.zeros(())}}, obs)["critic"]
    np.testing.assert_allclose(features, numbers, rtol=1e-6)
    assert features.dtype == jnp.float32


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"critic_obs": ("secre",)}, r"network\.critic_obs: no entry 'secre' .* there are .*secret"),
        ({"encoders": {"imag": encoders.SmallCNN()}}, r"network\.encoders: no entry 'imag'.*nearest: image"),
        (
            {"critic": Tower(encoders={"imag": encoders.SmallCNN()})},
            r"network\.critic\.encoders: no entry 'imag'.*nearest: image",
        ),
        ({"encoder": {"image": encoders.SmallCNN()}}, r"network\.encoder = .*write encoders=\{"),
        ({"critic": {"hidden": (3,)}}, r"network\.critic = .*write ppax\.networks\.Tower"),
        (
            {"shared": True, "critic": Tower(hidden=(3,))},
            r"network\.shared = true: .*network\.critic = .*hidden=\(3,\)",
        ),
        ({"remat": True}, r"network\.remat = true: there is no memory"),
        ({"shared": True, "critic_obs": ("secret",)}, r"network\.shared = true"),
        ({"encoder": encoders.NatureCNN()}, r"NatureCNN.* has an empty output for image \[6, 5, 2\]"),
    ],
)
def test_network_options_that_do_not_fit_the_spaces_are_refused(options, named):
    with pytest.raises(ppax.ConfigError, match=named):
        network(World(DICT), **options)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1.0, 1.0, (0,)),
        spaces.Dict({}),
        spaces.Dict({"a": spaces.Box(-1.0, 1.0, (0, 2)), "b": spaces.Box(-1.0, 1.0, (0,))}),
    ],
    ids=["box", "dict", "dict-of-boxes"],
)
def test_an_observation_without_an_element_is_refused(space):
    with pytest.raises(ppax.ConfigError, match=r"network\.actor_obs: the observation has no element .* constant"):
        network(World(space))


def test_an_entry_without_an_element_beside_others_has_no_weights():
    space = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (0,)), "b": spaces.Box(-1.0, 1.0, (3,))})
    params = network(World(space), hidden=(5,)).init(jax.random.key(0), 1)
    assert {x.shape for x in jax.tree.leaves(params["actor"])} == {(3, 5), (5,)}


def test_convolution_without_an_image_is_refused():
    with pytest.raises(ppax.ConfigError, match=r"there are obs \[4\]: use flat"):
        network(CARTPOLE, encoder=encoders.SmallCNN())


# ---------------------------------------------------------------- memories in training


def start(agent, env, steps):
    return jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, steps, jax.random.key(0))


def agent_of(net, **options):
    return ppax.PPO(net, minibatch=Shuffle(2), learning_rate=3e-3, num_epochs=2, **options)


def three_updates(agent, env, steps=8):
    state = start(agent, env, steps)
    train = jax.jit(ppax.train, compiler_options=QUICK)
    for _ in range(3):
        before = state.learner.params
        state, metrics = train(agent, env, state, 1, 10)
        assert float(metrics["ratio_first_max_dev"]) < 2e-6
        assert float(metrics["ratio_max"]) > 1.0 + 1e-6
        moved = jax.tree.map(lambda old, new: bool(np.abs(new - old).max() > 0), before, state.learner.params)
        assert all(jax.tree.leaves(moved)), moved
    return state


QUICKEST = ("gru", "mingru", "stack")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICKEST else pytest.mark.nightly) for n in SMALL])
def test_every_memory_trains_and_its_first_ratio_is_one(name):
    """Train on sequences of half a rollout with episodes of five steps, so that resets fall everywhere."""
    shared = name in ("lstm", "lru", "window")
    net = network(CARTPOLE, hidden=(8,), memory=SMALL[name], shared=shared)
    state = three_updates(agent_of(net, seq_len=4), CARTPOLE)
    assert ("critic" in state.learner.params) is not shared


@pytest.mark.parametrize("name", ["gru", pytest.param("attention", marks=pytest.mark.nightly)])
def test_memories_train_with_every_other_option(name):
    options = {
        "normalize_obs": True,
        "normalize_reward": True,
        "recompute": ppax.recompute.Epoch(),
        "compute_dtype": "bfloat16",
    }
    net = network(CARTPOLE, hidden=(8,), memory=SMALL[name])
    agent = agent_of(net, seq_len=4, program=Program(devices=2, chunk_rows=8), **options)
    state, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, CARTPOLE, start(agent, CARTPOLE, 8), 2)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.learner.params))
    assert float(metrics["ratio_first_max_dev"]) < 1e-6  # bfloat16 too: acting and learning compute alike


@pytest.mark.parametrize("name", ["picture", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("none", "vector"))])
def test_every_kind_of_observation_trains(name):
    env = VectorEnv(Gallery(), 4)
    chosen = {
        "none": {},
        "vector": {"actor_obs": ("seen",), "critic_obs": ("secret",), "memory": memories.GRU(6)},
        "picture": {"encoders": {"image": encoders.ImpalaCNN(channels=(2,))}, "shared": True},
    }[name]
    three_updates(agent_of(network(env, hidden=(8,), **chosen), normalize_obs=name == "vector"), env)


def test_carries_are_stored_at_sequence_starts_and_persist_over_rollouts():
    """Compare windows over several rollouts with those over one; only carries at sequence starts are stored."""
    env = VectorEnv(Counter(6), 2)
    net = network(env, hidden=(), memory=memories.Window(steps=3, hidden=()))
    agent = agent_of(net, seq_len=2)
    state = start(agent, env, 4)
    run = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    actor, times = state.actor, []
    for _ in range(3):
        out = run(agent, env, state.learner, actor, 4, jax.random.key(0))
        carry = out.rollout.steps.carry["actor"]
        assert carry.steps.shape == (2, 2, 2, 2)  # two sequences, two environments, two steps before, two numbers
        times += np.asarray(jnp.where(carry.real, carry.steps[..., 0], -1))[:, 0].tolist()
        actor = out.actor
    # by hand: times run 0 1 2 3 4 5 6 | 0 1 2 3 4; before each second of them the two before it in its episode
    assert times == [[-1, -1], [0, 1], [2, 3], [4, 5], [-1, 0], [1, 2]]


def test_evaluation_resets_memory_at_each_episode():
    env = VectorEnv(TimeLimit(builtin.CartPole(), 9), 2)
    agent = agent_of(network(env, hidden=(), memory=SMALL["gru"]))
    state = start(agent, env, 8)
    carry = jax.tree.map(lambda x: x + 5.0, state.actor.carry)
    policy = jax.jit(agent.policy, compiler_options=QUICK)
    obs = state.actor.obs
    values = [policy(state.learner, c, obs, jnp.ones(2, bool), None).value for c in (carry, state.actor.carry)]
    np.testing.assert_array_equal(*values)
    assert np.abs(policy(state.learner, carry, obs, jnp.zeros(2, bool), None).value - values[0]).max() > 1e-3


def test_updates_do_not_depend_on_seq_len_without_memory():
    """Use a window of one step, a memory without past."""

    def run(seq_len):
        net = network(CARTPOLE, hidden=(8,), memory=memories.Window(steps=1, hidden=()))
        agent = dataclasses.replace(agent_of(net, seq_len=seq_len), minibatch=Shuffle(1))
        return jax.jit(ppax.train, compiler_options=QUICK)(
            agent, CARTPOLE, start(agent, CARTPOLE, 8), 2
        ).state.learner.params

    for one, other in zip(jax.tree.leaves(run(8)), jax.tree.leaves(run(2)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


# ---------------------------------------------------------------- run files


def test_networks_from_run_files_equal_those_from_python():
    plan = {
        "env": "CartPole-v1",
        "agent": {
            "network": {
                "hidden": [8],
                "head_hidden": [4],
                "shared": True,
                "memory": {"part": "lstm", "width": 5},
                "encoder": {"part": "flat"},
            }
        },
    }
    built = config.build(plan)
    same = network(built.env, encoders.Flat(), memories.LSTM(5), hidden=(8,), head_hidden=(4,), shared=True)
    assert built.agent.network == same
    described = config.describe(built.agent)["network"]
    assert described["memory"] == {"part": "lstm", "width": 5}
    assert config.build({"agent": {"network": described}}).agent.network == same
    with pytest.raises(ppax.ConfigError, match=r"agent\.network\.memory\.width = 0: must be at least 1"):
        config.resolve({"agent": {"network": {"memory": {"part": "gru", "width": 0}}}})
    with pytest.raises(ppax.ConfigError, match=r"agent\.network\.memory\.part = 'gruu'.*nearest: gru"):
        config.resolve({"agent": {"network": {"memory": {"part": "gruu"}}}})
    table = {"part": "composed", "hidden": [8]}
    assert config.build({"agent": {"network": table}}).agent.network == mlp(built.env, (8,))


@pytest.mark.parametrize("memory", config.PARTS["memory"])
def test_every_option_of_every_memory_is_checked_and_reaches_the_part(memory):
    plan = {"agent": {"network": {"memory": {"part": memory}}}}
    built = config.build(plan).agent.network.memory
    assert type(built) is config.PARTS["memory"][memory]
    for option in config.options(plan):
        own = option.path.startswith("agent.network.memory.") and option.path.count(".") == 3
        if own and "low" in option.limits:
            name = option.path.rpartition(".")[2]
            low = option.limits["low"]
            value = [low] if option.many else low
            chosen = config.build(
                {"agent": {"network": {"memory": {"part": memory, name: value}}}}
            ).agent.network.memory
            assert getattr(chosen, name) == (tuple(value) if option.many else value)


# ---------------------------------------------------------------- modules of other libraries


def nnx_torso(rngs):
    from flax import nnx

    return nnx.Linear(4, 3, rngs=rngs)


def nnx_with_noise(rngs):
    from flax import nnx

    return nnx.Sequential(nnx.Linear(4, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs))


def equinox_torso(key):
    import equinox

    return equinox.nn.Linear(4, 3, key=key)


@pytest.mark.parametrize("library", ["nnx", "linen", "equinox"])
def test_adapter_output_is_that_of_the_module_with_its_parameters(library):
    with jax.numpy_rank_promotion("allow"):
        if library == "linen":
            from flax import linen

            encoder, names = adapters.Linen(linen.Dense(3)), ("kernel", "bias")
        elif library == "nnx":
            encoder, names = adapters.NNX(nnx_torso), ("kernel", "bias")
        else:
            encoder, names = adapters.Equinox(equinox_torso), ("weight", "bias")
        net = network(CARTPOLE, encoder=encoder, hidden=())
        learned = jax.jit(net.init, compiler_options=QUICK)(jax.random.key(0))
        params = learned["actor"]["encoder"]["obs"]
        x = np.array([0.5, -1.0, 2.0, 0.25], np.float32)
        weights = np.asarray(params[names[0]], np.float64)
        by_hand = x @ (weights.T if library == "equinox" else weights) + np.asarray(params[names[1]])
        np.testing.assert_allclose(net.encode(learned, jnp.asarray(x))["actor"], by_hand, rtol=1e-5, atol=1e-6)


def test_module_with_state_besides_parameters_is_refused():
    with pytest.raises(ppax.ConfigError, match="nnx_with_noise has state besides its parameters: BatchStat"):
        network(CARTPOLE, encoder=adapters.NNX(nnx_with_noise), hidden=()).init(jax.random.key(0))


def test_missing_library_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "equinox", None)
    with pytest.raises(ImportError, match=r"pip install 'ppax\[equinox\]'"):
        adapters.Equinox(equinox_torso)({}, jnp.zeros(4))


def test_rejoined_sequences_start_with_the_carry_of_the_first():
    """Cut two streams of four steps into sequences of two and rejoin them; the carry encodes stream and step."""
    valid = jnp.ones((4, 2), bool)
    carry = jnp.array([[[0, 0], [1, 0]], [[0, 2], [1, 2]]])  # [T / L, B, 2]
    steps = Transition(*[None] * 8, valid=valid, carry=carry)
    zeros = jnp.zeros((4, 2))
    steps = dataclasses.replace(steps, truncated=~valid, terminated=~valid)
    batch = batches.cut(steps, Targets(zeros, zeros), 2)
    cut, inputs = ppax.recompute.Epoch().inputs(batch, steps, zeros, zeros, 2)
    np.testing.assert_array_equal(cut.steps.carry[:, 0], [[0, 0], [0, 2], [1, 0], [1, 2]])
    seen = []

    class Evaluating:
        """Agent that keeps the sequences that it evaluates, and stops there."""

        def evaluate_actions(self, learner, steps):
            seen.append(steps)
            raise StopIteration

    learner = ppax.core.types.LearnerState({}, (), None, None)
    again = ppax.recompute.Recomputation(Evaluating(), None, learner, cut.steps, inputs, None, 4)
    with pytest.raises(StopIteration):
        again.over_rollout({})
    (joined,) = seen
    np.testing.assert_array_equal(joined.carry[:, 0], [[0, 0], [1, 0]])
    assert joined.valid.shape == (2, 4)


# ---------------------------------------------------------------- windows of single entries

PAIR = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.Box(-1.0, 1.0, (3,)), "c": spaces.Discrete(2)})


def windows_by_hand(features, first, columns, steps):
    """Each step's earlier columns in its episode, the oldest first, zeros before its start; then all of the step."""
    rows = []
    for t, now in enumerate(features):
        begin = max(i for i in range(t + 1) if first[i])
        earlier = [features[t - i, columns] if t - i >= begin else np.zeros(len(columns)) for i in range(1, steps)]
        rows.append(np.concatenate([*reversed(earlier), now]))
    return np.array(rows)


@pytest.mark.parametrize(
    ("chosen", "columns"), [(("b",), [2, 3, 4]), (("c", "a"), [5, 6, 0, 1]), ((), [*range(7)])], ids=str
)
def test_a_window_of_single_entries(chosen, columns):
    """Its earlier steps have these entries alone, also where a sequence continues another one."""
    net = network(World(PAIR), hidden=(), memory=memories.Window(steps=3, hidden=(), entries=chosen), shared=True)
    rng = np.random.default_rng(0)
    obs = {"a": rng.normal(size=(8, 2)), "b": rng.normal(size=(8, 3)), "c": rng.integers(0, 2, 8)}
    first = np.array([1, 0, 0, 0, 1, 0, 0, 0], bool)
    flat = np.concatenate([obs["a"], obs["b"], np.eye(2)[obs["c"]]], axis=1).astype(np.float32)
    params = net.init(jax.random.key(0))
    assert params["policy"]["kernel"].shape == (2 * len(columns) + 7, 3)
    encoded = jax.vmap(net.encode, (None, 0))(params, jax.tree.map(jnp.asarray, obs))
    carry, parts = net.initial_carry(), []
    for rows in (slice(0, 3), slice(3, 8)):
        memory = net.remember(params, carry, jax.tree.map(lambda x, rows=rows: x[rows], encoded), first[rows])
        carry, parts = memory.carry, [*parts, memory.features["actor"]]
    np.testing.assert_allclose(np.concatenate(parts), windows_by_hand(flat, first, columns, 3), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"hidden": (8,)}, r"memory\.entries = \['b'\]: the hidden .* mix .* network\.memory\.hidden = \[8\]"),
        ({"memory": memories.Window(entries=("d",))}, r"no entry 'd' .* there are a, b, c; nearest: "),
        ({"critic_obs": ("a", "c")}, r"no entry 'b' .* there are a, c"),
        ({"memory": memories.Stack(memories.Window(entries=("b",)))}, r"entries = \['b'\]: the layers of a stack mix"),
    ],
)
def test_windows_of_single_entries_that_cannot_be_are_refused(options, named):
    given = {"hidden": (), "memory": memories.Window(entries=("b",))} | options
    with pytest.raises(ppax.ConfigError, match=named):
        network(World(PAIR), **given)


def test_a_run_with_a_window_of_one_entry():
    """In a run file; actions are learned from as they were chosen."""
    window = {"part": "window", "steps": 4, "hidden": [8], "entries": ["change"]}
    tables = {"hidden": [], "memory": window}
    run = ppax.build("rl8/AlgoTrading", total_steps=256, num_envs=4, num_steps=16, agent={"network": tables}).fit()
    kernel = run.state.learner.params["actor"]["memory"]["0"]["kernel"]
    assert kernel.shape == (3 * 1 + 4, 8)  # "change" of three steps; "invested" one-hot, "change" and "gain" of one
    assert abs(run.history[0]["ratio_first_max_dev"]) < 1e-5
    assert config.describe(run.agent)["network"]["memory"] == window | {"activation": "tanh"}
