"""Policies of many agents: by agent, by group, with parameters of their own, in self-play."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.agents.self_play import Pool, SelfPlay
from ppax.core.types import ConfigError
from ppax.envs import grouped
from ppax.networks import memories, network
from support.crowds import Hunt
from support.team_worlds import Squad
from support.trained import env_of, observations, policy_of, random_learner, rows

RNG = np.random.default_rng(0)
NAMES = ("agent_0", "agent_1", "agent_2")


def alone(agent, learner, obs, env):
    """Mode of the forward pass of one PPO for one observation."""
    out = agent.policy(learner, agent.initial_carry(1), obs[None], jnp.ones(1, bool), None)
    return np.asarray(out.distribution.env_action(out.distribution.mode()))[0]


def test_players_act_with_their_own_parameters():
    """Each player against a PPO with its slice of the learner; arrays, batches and dicts by name."""
    env = env_of("ragged", num_agents=3)
    agent = ppax.Independent(ppax.PPO(network(env, hidden=(4,)), normalize_obs=True), 3)
    learner = random_learner(agent, env)
    policy = policy_of(agent, env, learner)
    obs = RNG.normal(size=(2, 3, 3)).astype(np.float32)
    own = np.stack(
        [
            [alone(agent.player(i), jax.tree.map(lambda x, i=i: x[i], learner), obs[e, i], env) for i in range(3)]
            for e in range(2)
        ]
    )
    assert len({tuple(x) for x in own[0]}) > 1
    np.testing.assert_array_equal(policy.act(obs), own)
    np.testing.assert_array_equal(policy.act(obs[0]), own[0])
    named = policy.act({"agent_2": obs[0, 2], "agent_0": obs[0, 0]})
    assert list(named) == ["agent_2", "agent_0"]
    np.testing.assert_array_equal(named["agent_2"], own[0, 2])
    np.testing.assert_array_equal(named["agent_0"], own[0, 0])
    assert policy.spec.action_space.contains(named["agent_0"])
    with pytest.raises(ConfigError, match=r"obs has the shape \[2, 3\], its space \[3, 3\]; give .* the 3 agents"):
        policy.act(obs[0, :2])
    with pytest.raises(ConfigError, match="obs\\['who'\\]: no such agent; there are 'agent_0'"):
        policy.act({"who": obs[0, 0]})


def test_a_single_player_of_its_own_needs_no_axis():
    env = env_of(num_agents=1)
    agent = ppax.Independent(ppax.PPO(network(env, hidden=(4,))), 1)
    policy = policy_of(agent, env)
    obs = RNG.normal(size=(5, 3)).astype(np.float32)
    assert policy.act(obs).shape == (5,)
    assert policy.act(obs[0]) == policy.act(obs)[0]


def test_one_policy_for_all_agents_acts_for_each_by_name():
    env = env_of("ragged", masked=True, num_agents=3)
    agent = ppax.PPO(network(env, hidden=(4,)))
    policy = policy_of(agent, env)
    obs, mask = RNG.normal(size=(3, 3)).astype(np.float32), RNG.random((3, 9)) < 0.5
    mask[:, [0, 3, 5]] = True
    rowwise = policy.act(obs, mask=mask)
    named = policy.act(dict(zip(NAMES, obs, strict=True)), mask=dict(zip(NAMES, mask, strict=True)))
    for i, name in enumerate(NAMES):
        np.testing.assert_array_equal(named[name], rowwise[i])
    one = policy.act({"agent_1": obs[1]}, mask={"agent_1": mask[1]})
    np.testing.assert_array_equal(one["agent_1"], rowwise[1])
    with pytest.raises(ConfigError, match="mask: must be a dict with the agents of obs"):
        policy.act({"agent_1": obs[1]}, mask={"agent_0": mask[1]})


def test_agents_that_are_absent_keep_their_memory():
    env = env_of("wide", num_agents=3)
    policy = policy_of(ppax.PPO(network(env, hidden=(4,), memory=memories.GRU(4), distribution="ball")), env)
    obs = dict(zip(NAMES, RNG.normal(size=(3, 3)).astype(np.float32), strict=True))
    policy.act(obs)
    second = policy.act(obs)
    policy.reset()
    policy.act(obs)
    policy.act({"agent_0": obs["agent_0"]})
    again = policy.act(obs)
    np.testing.assert_allclose(again["agent_1"], second["agent_1"], rtol=1e-6)
    assert np.abs(again["agent_0"] - second["agent_0"]).max() > 1e-5
    policy.reset({"agent_1": True})
    after = policy.act(obs)
    policy.reset()
    fresh = policy.act(obs)
    np.testing.assert_allclose(after["agent_1"], fresh["agent_1"], rtol=1e-6)
    assert np.abs(after["agent_2"] - fresh["agent_2"]).max() > 1e-5


def pursuit(memory=None):
    """Two unlike agents of three: prey [0], and hunters [1, 2], the second group with players of their own."""
    env = grouped(ppax.make("Pursuit-3", 4), {"prey": [0], "hunter": [1, 2]})
    nets = {
        name: network(group, hidden=(4,), **({} if memory is None else {"memory": memory}))
        for name, group in env.groups.items()
    }
    agents = {
        "prey": ppax.PPO(nets["prey"], normalize_obs=True),
        "hunter": ppax.Independent(ppax.PPO(nets["hunter"]), 2),
    }
    return ppax.Groups(agents, env.sizes), env


def test_groups_act_each_with_its_own_agent():
    agent, env = pursuit()
    learner = random_learner(agent, env)
    policy = policy_of(agent, env, learner)
    obs = {name: observations(g.observation_space, RNG, (2, g.num_agents)) for name, g in env.groups.items()}
    hunters = agent.agents["hunter"]
    own = {
        "prey": [[alone(agent.agents["prey"], learner["prey"], obs["prey"][e, 0], env)] for e in range(2)],
        "hunter": [
            [
                alone(hunters.player(i), jax.tree.map(lambda x, i=i: x[i], learner["hunter"]), obs["hunter"][e, i], env)
                for i in range(2)
            ]
            for e in range(2)
        ],
    }
    acted = policy.act(obs)
    assert list(acted) == ["prey", "hunter"]
    single = policy.act(rows(obs, 0))
    for name in own:
        np.testing.assert_allclose(acted[name], own[name], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(single[name], own[name][0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match=r"obs: \['prey'\]; must be a dict by group: 'hunter', 'prey'"):
        policy.act({"prey": obs["prey"]})
    with pytest.raises(ConfigError, match="equally many observations; there are 'hunter': one, 'prey': 2"):
        policy.act({"prey": obs["prey"], "hunter": obs["hunter"][0]})
    with pytest.raises(ConfigError, match=r"obs\['hunter'\] has the shape \[3, "):
        policy.act({"prey": obs["prey"][0], "hunter": np.zeros((3, obs["hunter"].shape[-1]), np.float32)})


def test_memory_of_groups_is_reset_by_environment():
    agent, env = pursuit(memories.GRU(4))
    policy = policy_of(agent, env)
    obs = {name: observations(g.observation_space, RNG, (3, g.num_agents)) for name, g in env.groups.items()}
    first = policy.act(obs)
    policy.act(obs)
    policy.reset(np.array([False, True, False]))
    third = policy.act(obs)
    for name in first:
        np.testing.assert_allclose(third[name][1], first[name][1], rtol=1e-5, atol=1e-6)
        assert np.abs(third[name][[0, 2]] - first[name][[0, 2]]).max() > 1e-5


def test_log_probabilities_of_groups_are_joined_by_stream():
    """The mode's log-probability equals what `act` gives for the same action where the sample is the mode."""
    agent, env = pursuit()
    learner = random_learner(agent, env)
    policy = policy_of(agent, env, learner)
    obs = {name: observations(g.observation_space, RNG, (4 * g.num_agents,)) for name, g in env.groups.items()}
    first = jnp.ones(12, bool)
    out = policy.step(policy.initial_carry(12), obs, first)
    forward = agent.policy(learner, agent.initial_carry(12), obs, first, None).distribution.parts
    log_prob = {name: one.log_prob(one.mode()) for name, one in forward.items()}
    joined = np.concatenate(
        [np.asarray(log_prob["prey"]).reshape(4, 1), np.asarray(log_prob["hunter"]).reshape(4, 2)], 1
    )
    np.testing.assert_allclose(out.log_prob, joined.reshape(-1), rtol=1e-6)
    sampled = policy.step(policy.initial_carry(12), obs, first, key=jax.random.key(0))
    assert sampled.log_prob.shape == (12,)


def test_self_play_acts_with_the_current_learners():
    groups, env = pursuit()
    agent = SelfPlay(groups, Pool(every=2, opponents=1, share=0.5), 4)
    learner = random_learner(agent, env)
    policy, own = policy_of(agent, env, learner), policy_of(groups, env, learner.current)
    obs = {name: observations(g.observation_space, RNG, (g.num_agents,)) for name, g in env.groups.items()}
    for name, action in own.act(obs).items():
        np.testing.assert_array_equal(policy.act(obs)[name], action)
    assert policy.evaluate(env, episodes=6).returns.shape == (6,)


def test_agents_of_an_environment_on_the_host_keep_their_names():
    """The loop of a user's own PettingZoo environment: dicts in, dicts out, agents that come and go."""
    env = ppax.envs.host(Squad, 2)
    policy = policy_of(ppax.PPO(network(env, hidden=(4,))), env)
    assert policy.spec.names == ("a", "b", "c", "d")
    world = Squad()
    obs, _ = world.reset(seed=0)
    present = []
    while world.agents:
        acted = policy.act({name: obs[name] for name in world.agents})
        assert {name: policy.act(obs[name]) for name in acted} == acted
        present.append("".join(acted))
        obs, *_ = world.step(acted)
    assert present == ["abc", "abc", "bcd", "bcd", "cd"]


class Early(Squad):
    """Squad of agents who are all there from the beginning."""

    COMES = {}  # noqa: RUF012


class Company(Squad):
    """Agents a and c observe 3 numbers and have 2 actions, b and d observe 2 and turn a knob; d appears late."""

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, (3 if agent in "ac" else 2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2, start=3) if agent in "ac" else spaces.Box(-1.0, 1.0, (1,), np.float32)

    def step(self, actions):
        for name, action in actions.items():
            assert self.action_space(name).contains(action), (name, action)
        return super().step({name: float(np.sum(action)) for name, action in actions.items()})

    def _see(self, agents):
        return {agent: x[: 3 if agent in "ac" else 2] for agent, x in super()._see(agents).items()}


@pytest.fixture(name="company")
def policy_of_two_groups_with_memory():
    env = grouped(ppax.envs.host(Company, 2), {"deciders": [2, 0], "turners": [1, 3]})
    assert env.agent_names == ("c", "a", "b", "d")
    nets = {name: network(group, hidden=(4,), memory=memories.GRU(4)) for name, group in env.groups.items()}
    agents = {"deciders": ppax.PPO(nets["deciders"]), "turners": ppax.Independent(ppax.PPO(nets["turners"]), 2)}
    return policy_of(ppax.Groups(agents, env.sizes), env)


def test_groups_act_in_the_loop_of_a_parallel_environment(company):
    """Dicts of PettingZoo in, dicts out, with those agents that are there."""
    world = Company()
    obs, _ = world.reset(seed=0)
    acting = []
    while world.agents:
        acted = company.act({name: obs[name] for name in world.agents})
        acting.append("".join(acted))
        obs, *_ = world.step(acted)
    assert acting == ["abc", "abc", "bcd", "bcd", "cd"]
    assert company.act({}) == {}


def test_a_dict_by_agent_and_arrays_by_group_give_the_same_actions(company):
    obs = {name: RNG.normal(size=3 if name in "ac" else 2).astype(np.float32) for name in "dabc"}
    places = {"c": ("deciders", 0), "a": ("deciders", 1), "b": ("turners", 0), "d": ("turners", 1)}
    company.reset()
    named = company.act(obs)
    company.reset()
    by_group = company.act({"deciders": np.stack([obs["c"], obs["a"]]), "turners": np.stack([obs["b"], obs["d"]])})
    assert list(named) == ["d", "a", "b", "c"]
    for name, (group, place) in places.items():
        np.testing.assert_array_equal(named[name], by_group[group][place])
    with pytest.raises(ConfigError, match=r"obs\['who'\]: no such agent; there are 'c', 'a', 'b', 'd'"):
        company.act({"who": obs["a"], "a": obs["a"]})
    with pytest.raises(ConfigError, match=r"obs: \['deciders'\]; must be a dict by group: .*, or by agent: 'c', 'a'"):
        company.act({"deciders": obs["a"]})
    with pytest.raises(ConfigError, match=r"obs\['a'\]: give one observation .* for a batch dicts by group"):
        company.act({"a": np.zeros((4, 3), np.float32)})


def test_absent_agents_of_groups_keep_their_memory_until_they_are_reset(company):
    """`b` and `d` turn knobs: continuous actions, in which a memory is seen."""
    first, second = ({name: RNG.normal(size=2).astype(np.float32) for name in "bd"} for _ in range(2))
    company.reset()
    company.act(first)
    expected = company.act(second)
    company.reset()
    company.act(first)
    company.act({"d": second["d"]})
    again = company.act(second)
    np.testing.assert_allclose(again["b"], expected["b"], rtol=1e-6)
    assert np.abs(again["d"] - expected["d"]).max() > 1e-6
    company.reset({"b": True, "c": True})
    after = company.act(second)
    company.reset()
    fresh = company.act(second)
    np.testing.assert_allclose(after["b"], fresh["b"], rtol=1e-6)
    assert np.abs(after["d"] - fresh["d"]).max() > 1e-6


def test_groups_that_have_the_names_of_their_agents_take_both_forms():
    """A dict by agent has no axis of agents; one by group has an axis of length one."""
    env = grouped(ppax.envs.host(Early, 2), {name: [i] for i, name in enumerate("abcd")})
    agents = {name: ppax.PPO(network(group)) for name, group in env.groups.items()}
    policy = policy_of(ppax.Groups(agents, env.sizes), env)
    obs = {name: RNG.normal(size=3).astype(np.float32) for name in "abcd"}
    by_agent, by_group = policy.act(obs), policy.act({name: x[None] for name, x in obs.items()})
    batch = policy.act({name: np.stack([x[None], x[None]]) for name, x in obs.items()})
    for name in obs:
        assert np.shape(by_agent[name]) == ()
        assert by_group[name].shape == (1,)
        assert batch[name].shape == (2, 1)
        assert by_agent[name] == by_group[name][0] == batch[name][0, 0] == batch[name][1, 0]


def test_masks_of_groups_by_agent():
    """In `Hunt` hunters have masks and prey, which moves freely, has none."""
    env = ppax.envs.host(partial(Hunt, masks=True), 2)
    agents = {name: ppax.PPO(network(group, hidden=(4,))) for name, group in env.groups.items()}
    policy = policy_of(ppax.Groups(agents, env.sizes), env)
    hunters, prey = ["hunter_0", "hunter_1"], ["prey_0", "prey_1"]
    obs = {name: RNG.normal(size=3).astype(np.float32) for name in hunters}
    obs |= {name: RNG.normal(size=4).astype(np.float32) for name in prey}
    for action in range(3):
        mask = {"hunter_0": np.arange(3) == action, "hunter_1": np.arange(3) == 2 - action, "prey_0": None}
        acted = policy.act(obs, mask=mask)
        assert (acted["hunter_0"], acted["hunter_1"]) == (action, 2 - action)
        assert policy.act({"hunter_1": obs["hunter_1"]}, mask={"hunter_1": mask["hunter_1"]})["hunter_1"] == 2 - action
    with pytest.raises(ConfigError, match=r"mask\['hunter_1'\]: is missing, and other agents of 'hunter' have one"):
        policy.act(obs, mask={"hunter_0": mask["hunter_0"]})
    with pytest.raises(ConfigError, match="mask: must be a dict with the agents of obs"):
        policy.act(obs, mask=mask | {"who": mask["hunter_0"]})
    with pytest.raises(ConfigError, match="mask: this policy was trained with action masks"):
        policy.act(obs)


def test_a_specification_without_names_has_numbered_agents():
    agent, env = pursuit()
    spec = policy_of(agent, env).spec
    data = spec.to_data()
    assert data["names"] == ["prey_0", "hunter_0", "hunter_1"]
    assert ppax.PolicySpec.from_data(data | {"names": []}).names == spec.names
    many = {"sizes": [["prey", 1], ["hunter", 2**20]], "num_agents": 2**20 + 1, "names": []}
    with pytest.raises(ConfigError, match="agents, groups and their spaces contradict each other"):
        ppax.PolicySpec.from_data(data | many)
