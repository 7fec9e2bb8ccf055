"""V on demand: by hand in float64, from the agent's own forward pass, and refused where observations lack entries."""

import json
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.types import ConfigError
from ppax.envs import grouped
from ppax.networks import memories, mlp, network
from ppax.policy import Policy, PolicySpec
from ppax.policy.bundle import onnx_format, stablehlo_format
from ppax.policy.bundle.archive import read_archive
from ppax.policy.bundle.interface import Interface
from ppax.policy.bundle.numpy_policy import NumpyPolicy
from support import exported
from support.rounded import near
from support.team_worlds import Squad
from support.trained import observations, policy_of, random_learner, rows

RNG = np.random.default_rng(0)
SEEN = spaces.Dict(own=spaces.Box(-1.0, 1.0, (3,), np.float32), mass=spaces.Box(-1.0, 1.0, (2,), np.float32))
VECTOR = spaces.Box(-2.0, 2.0, (4,), np.float32)
MEMORIES = {
    "none": memories.NoMemory(),
    "gru": memories.GRU(4),
    "attention": memories.Attention(width=4, steps=3, heads=2),
    "window": memories.Window(steps=3, hidden=(4,)),
}


def policy_for(space=SEEN, memory="none", **options):
    """Policy with random weights and statistics; of SEEN, only the critic reads the entry `mass`."""
    spec = PolicySpec(space, spaces.Discrete(3))
    if space is SEEN:
        options = {"actor_obs": ("own",)} | options
    agent = ppax.PPO(network(spec, hidden=(4,), memory=MEMORIES[memory], **options), normalize_obs=True)
    return Policy(agent, random_learner(agent, spec), spec)


def whole(policy, obs, first):
    """V [steps, batch] of the agent's own forward pass from whole observations, with its whole memory."""
    carry, values = policy.agent.initial_carry(first.shape[1]), []
    for t in range(len(first)):
        out = policy.agent.policy(policy.learner, carry, rows(obs, t), jnp.asarray(first[t]), None)
        carry = out.carry
        values.append(out.value)
    return np.stack(values)


def by_hand(params, obs, rounding=np.float64):
    """V of a critic of two hidden layers with tanh, in float64; factors of the second layer's product are rounded."""
    params = jax.tree.map(np.float64, params)
    first, second, head = params["critic"]["0"], params["critic"]["1"], params["value"]
    features = np.tanh(obs @ first["kernel"] + first["bias"])
    hidden = np.tanh(rounding(features) @ rounding(second["kernel"]) + second["bias"])
    return (hidden @ head["kernel"] + head["bias"])[:, 0]


def plain(compute_dtype="float32", width=32):
    """Policy of an MLP without normalisation, whose V is computed `by_hand`."""
    config = {"agent": {"compute_dtype": compute_dtype, "network": {"hidden": [width, width]}}}
    spec = PolicySpec(VECTOR, spaces.Discrete(3), config=config)
    agent = ppax.PPO(mlp(spec, hidden=(width, width)), compute_dtype=compute_dtype)
    return Policy(agent, agent.init(spec.observation_space, jax.random.key(3)), spec)


@pytest.mark.parametrize("deterministic", [True, False])
def test_v_is_that_of_the_critic_by_hand(deterministic):
    policy, obs = plain(), observations(VECTOR, RNG, (7,))
    wanted = by_hand(policy.learner.params, obs.astype(np.float64))
    assert np.ptp(wanted) > 0.1
    out = policy.act(obs, deterministic=deterministic, return_value=True)
    np.testing.assert_allclose(out.value, wanted, rtol=1e-5, atol=1e-6)
    assert (out.value.shape, out.value.dtype) == ((7,), np.float32)
    one = policy.act(obs[2], deterministic=deterministic, return_value=True)
    assert isinstance(one.value, np.float32)
    np.testing.assert_allclose(one.value, wanted[2], rtol=1e-5)
    key = None if deterministic else jax.random.key(0)
    stepped = jax.jit(lambda obs: policy.step((), obs, jnp.ones(7, bool), key=key, return_value=True))(obs)
    np.testing.assert_allclose(stepped.value, wanted, rtol=1e-5, atol=1e-6)
    assert policy.step((), obs, jnp.ones(7, bool)).value is None
    before = out.value.copy()
    policy.act(-obs, deterministic=deterministic, return_value=True)
    np.testing.assert_array_equal(out.value, before)  # a later call does not change it


@pytest.mark.parametrize("memory", MEMORIES)
def test_v_of_a_critic_that_sees_more_has_a_memory_of_its_own(memory):
    policy, obs, first = policy_for(memory=memory), observations(SEEN, RNG, (5, 3)), np.zeros((5, 3), bool)
    first[0], first[3, 1] = True, True
    wanted = whole(policy, obs, first)
    carry, actions = policy.initial_carry(3, return_value=True), []
    for t in range(5):
        if t == 3:
            policy.reset(first[3])
        out = policy.act(rows(obs, t), return_value=True)
        np.testing.assert_allclose(out.value, wanted[t], rtol=1e-5, atol=1e-6)
        stepped = policy.step(carry, rows(obs, t), jnp.asarray(first[t]), return_value=True)
        carry = stepped.carry
        np.testing.assert_allclose(stepped.value, wanted[t], rtol=1e-5, atol=1e-6)
        actions.append(out.action)
    policy.reset()
    for t in range(5):
        if t == 3:
            policy.reset(first[3])
        np.testing.assert_array_equal(policy.act({"own": obs["own"][t]}), actions[t])


def test_v_without_what_the_critic_reads_is_refused_and_actions_are_not():
    policy, own = policy_for(), {"own": np.zeros((2, 3), np.float32)}
    assert policy.critic_entries == ("mass",)
    needs = r"V \(return_value=True\) needs 'mass', which only the critic reads"
    with pytest.raises(ConfigError, match=needs):
        policy.act(own, return_value=True)
    with pytest.raises(ConfigError, match=needs):
        policy.step((), own, jnp.ones(2, bool), return_value=True)
    assert policy.act(own).shape == (2,)
    with pytest.raises(ConfigError, match=r"its space \['own'\]") as caught:
        policy.act({"mass": np.zeros(2)})
    assert "return_value" not in str(caught.value)


def test_a_critic_with_a_memory_of_its_own_sees_every_step_or_none():
    policy, obs = policy_for(memory="gru"), observations(SEEN, RNG, (2, 3))
    for asked in (True, False):
        policy.reset()
        policy.act(rows(obs, 0), return_value=asked)
        with pytest.raises(ConfigError, match=r"critic has a memory of its own, .* in every call of `act` since"):
            policy.act(rows(obs, 1), return_value=not asked)
        policy.act(rows(obs, 1), return_value=asked)
    with pytest.raises(ConfigError, match=r"at the start policy.initial_carry\(3, return_value=True\)"):
        policy.step(policy.initial_carry(3), rows(obs, 0), jnp.ones(3, bool), return_value=True)


def test_a_refused_first_call_does_not_decide():
    policy, obs = policy_for(memory="gru"), observations(SEEN, RNG, (2,))
    with pytest.raises(ConfigError, match="needs 'mass'"):
        policy.act({"own": obs["own"]}, return_value=True)
    policy.act({"own": obs["own"]})


def test_a_shared_memory_gives_v_in_any_call():
    policy = policy_for(VECTOR, memory="window", shared=True)
    obs, first = observations(VECTOR, RNG, (4, 2)), np.zeros((4, 2), bool)
    first[0] = True
    wanted = whole(policy, obs, first)
    for t in range(4):
        out = policy.act(obs[t], return_value=t % 2 == 1)
        if t % 2 == 1:
            np.testing.assert_allclose(out.value, wanted[t], rtol=1e-5, atol=1e-6)


def squad(kind):
    """Policy of four agents that also see the joint observation of all, which only the critic reads."""
    env = ppax.envs.host(Squad, 1, agent_ids=True, central_critic=True)
    if kind == "shared":
        return policy_of(ppax.PPO(network(env, hidden=(4,))), env)
    if kind == "independent":
        return policy_of(ppax.Independent(ppax.PPO(network(env, hidden=(4,))), 4), env)
    env = grouped(env, {"z": ["b"], "y": ["a", "d", "c"]})
    agents = {name: ppax.PPO(network(group, hidden=(4,))) for name, group in env.groups.items()}
    return policy_of(ppax.Groups(agents, env.sizes), env)


@pytest.mark.parametrize("kind", ["shared", "independent"])
def test_v_of_agents_by_name_and_in_arrays(kind):
    policy = squad(kind)
    names, obs = policy.spec.names, observations(policy.spec.observation_space, RNG, (3, 4))
    flat = jax.tree.map(lambda x: x.reshape(12, *x.shape[2:]), obs)
    wanted = policy.agent.policy(policy.learner, (), flat, jnp.ones(12, bool), None).value.reshape(3, 4)
    given = obs if kind == "independent" else flat
    np.testing.assert_allclose(policy.act(given, return_value=True).value.reshape(3, 4), wanted, rtol=1e-5, atol=1e-6)
    named = {name: rows(obs, (1, i)) for i, name in reversed(list(enumerate(names))) if name != "c"}
    out = policy.act(named, return_value=True)
    assert list(out.value) == list(out.action) == list(named)
    for i, name in enumerate(names):
        if name in named:
            np.testing.assert_allclose(out.value[name], wanted[1, i], rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match=r"needs 'joint', which only the critic reads"):
        policy.act({name: {"own": one["own"], "agent": one["agent"]} for name, one in named.items()}, return_value=True)


def test_v_of_groups_in_the_order_of_the_groups():
    policy = squad("groups")
    groups = policy.spec.groups
    assert [name for name, _ in policy.spec.sizes] != sorted(groups)
    obs = {name: observations(one.observation_space, RNG, (3, one.num_agents)) for name, one in groups.items()}
    flat = {
        name: jax.tree.map(lambda x, n=one.num_agents: x.reshape(3 * n, *x.shape[2:]), obs[name])
        for name, one in groups.items()
    }
    out = policy.act(obs, return_value=True)
    assert list(out.value) == list(out.action) == [name for name, _ in policy.spec.sizes]
    for name, one in groups.items():
        first = jnp.ones(3 * one.num_agents, bool)
        wanted = policy.agent.agents[name].policy(policy.learner[name], (), flat[name], first, None).value
        np.testing.assert_allclose(out.value[name], wanted.reshape(3, one.num_agents), rtol=1e-5, atol=1e-6)
    single = policy.act({name: rows(x, 1) for name, x in obs.items()}, return_value=True)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y[1], rtol=1e-5, atol=1e-6), single.value, out.value)
    by_agent = {"d": rows(obs["y"], (2, 1)), "b": rows(obs["z"], (2, 0))}
    named = policy.act(by_agent, return_value=True)
    np.testing.assert_allclose(named.value["d"], out.value["y"][2, 1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(named.value["b"], out.value["z"][2, 0], rtol=1e-5, atol=1e-6)
    assert named.action == {"d": out.action["y"][2, 1], "b": out.action["z"][2, 0]}


def test_masks_are_required_for_v_too():
    policy = exported.policy("shared", "masked", True)
    with pytest.raises(ConfigError, match="trained with action masks"):
        policy.act(np.zeros(4), return_value=True)
    out = policy.act(np.zeros(4), mask=[False, True, False, False, False], return_value=True)
    other = policy.act(np.zeros(4), mask=[False, False, False, False, True], return_value=True)
    assert (int(out.action), int(other.action)) == (-1, 2)
    assert out.value == other.value


def exported_asymmetric(path, return_value):
    """Bundle of a policy whose critic alone reads `mass`, with a memory each for actor and critic."""
    agent = {
        "normalize_obs": True,
        "network": {"hidden": [4], "actor_obs": ["own"], "memory": {"part": "gru", "width": 4}},
    }
    policy = exported.random_policy(PolicySpec(SEEN, spaces.Discrete(3), config={"agent": agent}))
    return policy, policy.export(path, ["numpy", "stablehlo", "onnx"], return_value=return_value)


@pytest.mark.usefixtures("cached_programs")
def test_every_format_takes_what_the_critic_reads_and_gives_v(tmp_path):
    policy, written = exported_asymmetric(tmp_path / "b.zip", True)
    assert max(written.differences.values()) < 1e-5
    described, files = read_archive(written.path)
    assert [x["name"] for x in described["inputs"]] == ["carry.actor", "carry.critic", "first", "obs.mass", "obs.own"]
    assert described["outputs"][-1] == {"name": "value", "shape": ["b"], "dtype": "float32"}
    obs, first = observations(SEEN, RNG, (6, 5)), RNG.random((6, 5)) < 0.3
    first[0] = True
    wanted = whole(policy, obs, first)
    interface = Interface(policy, return_value=True)
    steps = {
        "numpy": NumpyPolicy(written.path),
        "stablehlo": stablehlo_format.stablehlo_runner(files["policy.stablehlo"]),
        "onnx": onnx_format.onnx_runner(files["policy.onnx"], interface),
    }
    for step in steps.values():
        carry = steps["numpy"].initial_carry(5)
        for t in range(6):
            out = step({"obs.own": obs["own"][t], "obs.mass": obs["mass"][t], "first": first[t]} | carry)
            carry = {name.removeprefix("next_"): x for name, x in out.items() if name.startswith("next_carry")}
            np.testing.assert_allclose(out["value"], wanted[t], rtol=1e-5, atol=1e-5)
    loaded = ppax.load(written.path)
    np.testing.assert_allclose(loaded.act(rows(obs, 0), return_value=True).value, wanted[0], rtol=1e-5, atol=1e-5)


def test_without_being_asked_no_format_has_v_nor_needs_what_it_reads(tmp_path):
    _, written = exported_asymmetric(tmp_path / "b.zip", False)
    with zipfile.ZipFile(written.path) as bundle:
        described = json.loads(bundle.read("policy.json"))
    assert described["value"] is False
    assert [x["name"] for x in described["inputs"]] == ["carry.actor", "first", "obs.own"]
    assert "value" not in [x["name"] for x in described["outputs"]]


@pytest.mark.parametrize("kind", ["shared", "independent", "groups"])
def test_formats_of_many_agents_give_v_of_each(kind, tmp_path):
    policy = squad(kind)
    policy.export(tmp_path / "b.zip", ["numpy"], return_value=True)
    inputs = Interface(policy, return_value=True).examples(3, seed=4)
    out = NumpyPolicy(tmp_path / "b.zip")(inputs)
    assert out["value"].shape == ((3,) if kind == "shared" else (3, 4))
    if kind == "groups":
        obs = {g: {k: inputs[f"obs.{g}.{k}"] for k in ("own", "agent", "joint")} for g in ("y", "z")}
    else:
        obs = {k: inputs[f"obs.{k}"] for k in ("own", "agent", "joint")}
    value = policy.act(obs, return_value=True).value
    if kind == "groups":
        value = np.concatenate([value[name] for name, _ in policy.spec.sizes], axis=1)
    np.testing.assert_allclose(out["value"], value, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("cached_programs")
def test_a_policy_in_bfloat16_has_every_format(tmp_path):
    """V by hand: StableHLO rounds the factors of products, NumPy and ONNX do not; all choose the same actions."""
    policy, obs = plain("bfloat16", width=64), observations(VECTOR, RNG, (300,))
    written = policy.export(tmp_path / "b.zip", return_value=True)
    assert (sorted(written.differences), written.left_out) == (["numpy", "onnx", "stablehlo"], {})
    assert sorted(written.in_float32) == ["numpy", "onnx"]
    assert max(written.differences.values()) < 1e-5
    exact = by_hand(policy.learner.params, obs.astype(np.float64))
    rounded = by_hand(policy.learner.params, obs.astype(np.float64), near)
    assert 1e-3 < np.abs(exact - rounded).max() < 2e-2
    described, files = read_archive(written.path)
    products = {name: one.get("products") for name, one in described["formats"].items()}
    assert products == {"numpy": "float32", "onnx": "float32", "stablehlo": None}
    interface, given = Interface(policy, return_value=True), {"obs": obs, "first": np.ones(300, bool)}
    found = {
        "numpy": NumpyPolicy(written.path)(given),
        "stablehlo": stablehlo_format.stablehlo_runner(files["policy.stablehlo"])(given),
        "onnx": onnx_format.onnx_runner(files["policy.onnx"], interface)(given),
    }
    own = policy.act(obs, return_value=True)
    for name, out in found.items():
        # float32 inputs near a boundary of bfloat16 round to either side: a few of 64 factors, 2^-8 each
        wanted, tolerance = (rounded, 2e-3) if name == "stablehlo" else (exact, 1e-5)
        np.testing.assert_allclose(out["value"], wanted, rtol=0.0, atol=tolerance)
        np.testing.assert_allclose(out["value"], own.value, rtol=0.0, atol=2e-2)
        assert (out["action"] != own.action).mean() <= 0.02
    np.testing.assert_allclose(found["stablehlo"]["value"], own.value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ppax.load(written.path).act(obs, return_value=True).value, own.value, rtol=1e-5)


def test_groups_of_different_precision_are_in_float32_together(tmp_path):
    env = grouped(ppax.envs.host(Squad, 1), {"z": ["b"], "y": ["a", "d", "c"]})
    agents = {
        name: ppax.PPO(network(group, hidden=(32, 32)), compute_dtype=dtype)
        for (name, group), dtype in zip(env.groups.items(), ("bfloat16", "float32"), strict=True)
    }
    policy = policy_of(ppax.Groups(agents, env.sizes), env)
    written = policy.export(tmp_path / "b.zip", ["numpy"])
    assert written.in_float32 == ("numpy",)
    assert max(written.differences.values()) < 1e-5
