"""Acting without what only the critic reads: every kind of policy, from observations with and without those entries."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.types import ConfigError
from ppax.envs import grouped
from ppax.networks import memories, network
from ppax.policy import Policy, PolicySpec
from ppax.policy.actor import _read
from ppax.policy.bundle.interface import Interface
from ppax.policy.spec import spec_of
from support import exported
from support.team_worlds import Squad
from support.trained import observations, policy_of, random_learner, rows

RNG = np.random.default_rng(0)
SEEN = spaces.Dict(
    own=spaces.Box(-1.0, 1.0, (3,), np.float32),
    kind=spaces.Discrete(3, start=1),
    privileged=spaces.Dict(mass=spaces.Box(-1.0, 1.0, (2,), np.float32), ground=spaces.Discrete(4)),
)
ACTOR = ("own", "kind")
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
MEMORIES = {
    "none": memories.NoMemory(),
    "gru": memories.GRU(4),
    "lru": memories.LRU(4),
    "attention": memories.Attention(width=4, steps=3, heads=2),
    "window": memories.Window(steps=3, hidden=(4,)),
    "stack": memories.Stack(memories.GRU(4), num_layers=2),
}


def asymmetric(memory="none", space=SEEN, action=BOX, normalize=True, **options):
    """Policy of an agent whose critic alone reads the entry `privileged`, with random weights and statistics."""
    spec = PolicySpec(space, action)
    options = {"hidden": (4,), "actor_obs": ACTOR} | options
    agent = ppax.PPO(network(spec, memory=MEMORIES[memory], **options), normalize_obs=normalize)
    return Policy(agent, random_learner(agent, spec), spec)


def whole(policy, obs, steps):
    """Actions of the agent's own forward pass from whole observations [steps, batch, ...]."""
    agent, learner, batch = policy.agent, policy.learner, len(jax.tree.leaves(obs)[0][0])
    carry, actions = agent.initial_carry(batch), []
    for t in range(steps):
        out = agent.policy(learner, carry, rows(obs, t), jnp.full(batch, t == 0), None)
        carry = out.carry
        actions.append(out.distribution.env_action(out.distribution.mode()))
    return np.stack(actions)


def without(obs, *names):
    return {name: x for name, x in obs.items() if name not in names}


@pytest.mark.parametrize("memory", MEMORIES)
def test_actions_are_those_from_whole_observations(memory):
    """With the entry, without it, and with nonsense in it; for a batch, one observation, and as a pure function."""
    policy = asymmetric(memory)
    obs = observations(SEEN, RNG, (4, 3))
    wanted = whole(policy, obs, 4)
    nonsense = obs | {"privileged": {"mass": np.full((4, 3, 7), np.nan), "ground": None}}
    for given in (obs, without(obs, "privileged"), nonsense):
        policy.reset()
        acted = [policy.act(at(given, t)) for t in range(4)]
        np.testing.assert_allclose(acted, wanted, rtol=1e-5, atol=1e-6)
    policy.reset()
    single = [policy.act(rows(without(obs, "privileged"), (t, 0))) for t in range(4)]
    np.testing.assert_allclose(single, wanted[:, 0], rtol=1e-5, atol=1e-6)
    carry = policy.initial_carry(3)
    for t in range(4):
        given = rows(obs if t % 2 else without(obs, "privileged"), t)
        out = jax.jit(policy.step)(carry, given, jnp.full(3, t == 0))
        carry = out.carry
        np.testing.assert_allclose(out.action, wanted[t], rtol=1e-5, atol=1e-6)


def at(obs, t):
    """Observation of one step, with whatever stands in the privileged entries, if there are any."""
    return rows(without(obs, "privileged"), t) | {name: x for name, x in obs.items() if name == "privileged"}


def test_samples_need_no_more_than_modes():
    policy = asymmetric("gru", distribution="squashed")
    obs = without(observations(SEEN, RNG, (5,)), "privileged")
    policy.reset(seed=1)
    first = policy.act(obs, deterministic=False)
    policy.reset(seed=1)
    np.testing.assert_array_equal(policy.act(obs, deterministic=False), first)
    sampled = policy.step(policy.initial_carry(5), obs, jnp.ones(5, bool), key=jax.random.key(0))
    assert sampled.action.shape == (5, 2)


def test_the_specification_says_what_acting_needs():
    policy = asymmetric("gru")
    assert policy.spec.unread == ("privileged",)
    assert "'privileged' may be left out: acting does not read it" in str(policy.spec)
    assert list(policy.spec.memory) == ["actor"]
    again = PolicySpec.from_data(json.loads(json.dumps(policy.spec.to_data())))
    assert again.unread == ("privileged",)
    with pytest.raises(ConfigError, match=r"obs has the entries \['own'\], and its space \['kind', 'own'\]"):
        policy.act({"own": np.zeros(3)})
    with pytest.raises(ConfigError, match=r"obs has the entries \['own'\]; must have 'kind', which the policy reads"):
        policy.step(policy.initial_carry(1), {"own": jnp.zeros((1, 3))}, jnp.ones(1, bool))


def test_an_entry_inside_an_entry_is_left_out_alone():
    policy = asymmetric(actor_obs=("own", "privileged.ground"))
    assert policy.spec.unread == ("kind", "privileged.mass")
    obs = observations(SEEN, RNG, (3,))
    less = {"own": obs["own"], "privileged": {"ground": obs["privileged"]["ground"]}}
    np.testing.assert_array_equal(policy.act(less), policy.act(obs))
    assert {"obs.own", "obs.privileged.ground"} == obs_inputs(policy)


def test_an_entry_of_a_tuple_keeps_its_place():
    pair = spaces.Tuple([spaces.Box(-1.0, 1.0, (2,), np.float32), BOX, spaces.Discrete(3)])
    policy = asymmetric("gru", pair, actor_obs=("0", "2"))
    assert policy.spec.unread == ("1",)
    assert obs_inputs(policy) == {"obs.0", "obs.2"}
    obs = observations(pair, RNG, (3,))
    first = policy.act(obs)
    policy.reset()
    np.testing.assert_array_equal(policy.act((obs[0], None, obs[2])), first)


def test_a_shared_torso_reads_what_the_critic_reads():
    """One torso has the same entries for both, so acting needs all of them, and the one memory."""
    policy = asymmetric("gru", shared=True, actor_obs=())
    assert policy.spec.unread == ()
    assert obs_inputs(policy) == {"obs.own", "obs.kind", "obs.privileged.mass", "obs.privileged.ground"}
    with pytest.raises(ConfigError, match="privileged"):
        policy.act(without(observations(SEEN, RNG, (3,)), "privileged"))


@jax.tree_util.register_static
class OwnNetwork:
    """Network of a user's own: it says nowhere what its actor reads; `mixing` lets it read the privileged mass."""

    def __init__(self, inner, mixing):
        self.inner, self.mixing = inner, mixing

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def encode(self, params, obs):
        mass = obs["privileged"]["mass"].sum() if self.mixing else 0.0
        return self.inner.encode(params, obs | {"own": obs["own"] + mass})


@pytest.mark.parametrize(("mixing", "unread"), [(False, "privileged"), (True, "privileged.ground")])
def test_what_a_network_of_the_user_s_own_reads_is_found_in_its_program(mixing, unread):
    spec = PolicySpec(SEEN, BOX)
    inner = network(spec, hidden=(4,), actor_obs=ACTOR)
    learner = random_learner(ppax.PPO(inner), spec)
    assert Policy(ppax.PPO(OwnNetwork(inner, mixing)), learner, spec).spec.unread == (unread,)


def test_what_an_action_depends_on_steps_later_is_read():
    """A memory of two steps: the action is the observation of two steps ago; the third memory is the critic's."""

    class Late:
        def policy(self, learner, carry, obs, first, mask):
            last, before, of_critic = carry
            return SimpleNamespace(carry=(before, obs["own"], of_critic + obs["privileged"]), distribution=last)

    one = jax.ShapeDtypeStruct((1, 2), np.float32)
    read = _read(Late(), (), (one, one, one), {"own": one, "privileged": one}, None, None)
    assert read == [True, True, False, True, False]


def team(**options):
    return ppax.make("Pursuit-3", 2, agent_ids=True, central_critic=True, **options)


def test_players_with_parameters_of_their_own_need_no_joint_observation():
    env = team()
    agent = ppax.Independent(ppax.PPO(network(env, hidden=(4,), memory=memories.GRU(3)), normalize_obs=True), 3)
    policy = policy_of(agent, env)
    assert policy.spec.unread == ("joint",)
    obs = observations(env.observation_space, RNG, (2, 3))
    first = policy.act(obs)
    policy.reset()
    np.testing.assert_array_equal(policy.act(without(obs, "joint")), first)
    policy.reset()
    named = policy.act({f"agent_{i}": rows(without(obs, "joint"), (0, i)) for i in range(3)})
    np.testing.assert_allclose([named[f"agent_{i}"] for i in range(3)], first[0], rtol=1e-5)
    assert obs_inputs(policy) == {"obs.own", "obs.agent"}


def test_groups_need_no_joint_observation():
    env = grouped(team(), {"prey": [0], "hunter": [1, 2]})
    nets = {name: network(group, hidden=(4,), memory=memories.GRU(3)) for name, group in env.groups.items()}
    agents = {
        "prey": ppax.PPO(nets["prey"], normalize_obs=True),
        "hunter": ppax.Independent(ppax.PPO(nets["hunter"]), 2),
    }
    agent = ppax.Groups(agents, env.sizes)
    policy = policy_of(agent, env)
    assert policy.spec.unread == ("hunter.joint", "prey.joint")
    obs = {name: observations(one.observation_space, RNG, (2, one.num_agents)) for name, one in env.groups.items()}
    first = policy.act(obs)
    policy.reset()
    second = policy.act({name: without(one, "joint") for name, one in obs.items()})
    jax.tree.map(np.testing.assert_array_equal, second, first)
    assert obs_inputs(policy) == {f"obs.{name}.{entry}" for name in obs for entry in ("own", "agent")}


def obs_inputs(policy):
    return {leaf.name for leaf in Interface(policy).inputs if leaf.name.startswith("obs")}


@pytest.mark.usefixtures("cached_programs")
def test_every_format_takes_the_actor_s_entries_alone(tmp_path):
    """Over several steps with memory, the actions of the agent from whole observations."""
    policy = asymmetric("gru", distribution="squashed")
    policy.spec.config["agent"] = {"normalize_obs": True, "network": {"hidden": [4], "actor_obs": [*ACTOR]}}
    policy.spec.config["agent"]["network"] |= {"memory": {"part": "gru", "width": 4}, "distribution": "squashed"}
    written = policy.export(tmp_path / "bundle.zip", ["numpy", "stablehlo", "onnx"])
    assert max(written.differences.values()) < 1e-5
    with zipfile.ZipFile(written.path) as bundle:
        described = json.loads(bundle.read("policy.json"))
    names = ["carry.actor", "first", "obs.kind", "obs.own"]
    assert [x["name"] for x in described["inputs"]] == names
    assert [x["name"] for x in described["outputs"]] == ["action", "log_prob", "next_carry.actor"]
    assert described["spec"]["unread"] == ["privileged"]
    obs = observations(SEEN, RNG, (20, 50))
    wanted = whole(policy, obs, 20)
    first = np.zeros((20, 50), bool)
    first[0] = True
    np.savez(
        tmp_path / "inputs.npz", **{"obs.own": obs["own"], "obs.kind": obs["kind"].astype(np.int32), "first": first}
    )
    reader = Path(exported.__file__).with_name("bundle_reader.py")
    for kind in ("numpy", "stablehlo", "onnx"):
        subprocess.run([sys.executable, reader, kind, tmp_path], check=True)
        np.testing.assert_allclose(np.load(tmp_path / f"{kind}.npz")["action"], wanted, rtol=1e-5, atol=1e-5)
    loaded = ppax.load(written.path)
    assert loaded.spec.unread == ("privileged",)
    acted = [loaded.act(without(rows(obs, t), "privileged")) for t in range(20)]
    np.testing.assert_allclose(acted, wanted, rtol=1e-5, atol=1e-5)


def test_evaluation_plays_in_an_environment_that_still_gives_the_entries():
    env = team()
    agent = ppax.PPO(network(env, hidden=(4,)), normalize_obs=True)
    learner = random_learner(agent, env)
    policy = policy_of(agent, env, learner)
    own = ppax.evaluate(agent, env, learner, ppax.training.evaluation.evaluation_key(5), episodes=6)
    np.testing.assert_array_equal(policy.evaluate(env, episodes=6, seed=5).returns, own.returns)


def test_a_policy_trained_on_the_host_acts_without_the_joint_observation():
    env = ppax.envs.host(Squad, 1, agent_ids=True, central_critic=True)
    agent = ppax.PPO(network(env, hidden=(4,)))
    policy = Policy(agent, random_learner(agent, env), spec_of(agent, env, None, {}))
    assert policy.spec.unread == ("joint",)
    acted = policy.act({"a": {"own": np.zeros(env.observation_space["own"].shape), "agent": 0}})
    assert list(acted) == ["a"]
