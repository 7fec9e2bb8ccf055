"""All four agents satisfy the protocol `Agent`: its members, its shapes, and the values that a rollout stores."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.agents.metrics import require_distinct_names
from ppax.agents.self_play import Pool, without_streams
from ppax.core import protocols
from ppax.core.types import ConfigError, Requirements, Rollout, Update
from ppax.devices.layout import Program, with_devices
from ppax.distributions import Categorical
from ppax.envs import grouped
from ppax.networks import network
from ppax.networks.heads import CategoricalHead
from ppax.networks.memories import GRU
from ppax.ppo.minibatches import Shuffle
from ppax.training.arguments import AGENTS, require_fit
from ppax.training.host.policy import CompiledPolicy, HostNumpyPolicy, make_policy
from support.worlds import QUICK

NUM_ENVS, NUM_STEPS = 8, 4
ALIKE = ppax.make("Pursuit-2", NUM_ENVS)
GROUPED = grouped(ALIKE, {"prey": [0], "hunters": [1]})


def ppo(env, **options):
    return ppax.PPO(network(env, hidden=(4,), **options), minibatch=Shuffle(1), num_epochs=1)


def groups():
    return ppax.Groups({name: ppo(group) for name, group in GROUPED.groups.items()}, GROUPED.sizes)


MADE = {
    "PPO": (ppo(ALIKE), ALIKE),
    "recurrent": (ppo(ALIKE, memory=GRU(2)), ALIKE),
    "Independent": (ppax.Independent(ppo(ALIKE), 2), ALIKE),
    "Groups": (groups(), GROUPED),
    "SelfPlay": (ppax.SelfPlay(groups(), Pool(every=1, size=2, share=0.5, opponents=1), NUM_ENVS), GROUPED),
}


def test_all_agents_are_tried():
    assert {type(agent) for agent, _ in MADE.values()} == set(AGENTS)


@pytest.mark.parametrize("cls", AGENTS, ids=lambda cls: cls.__name__)
def test_members_have_the_protocols_names_and_arguments(cls):
    fields = {field.name for field in dataclasses.fields(cls)}
    members = {name: x for name, x in vars(protocols.Agent).items() if not name.startswith("_")}
    for name, member in members.items():
        assert hasattr(cls, name) or name in fields, name
        if inspect.isfunction(member):
            assert list(inspect.signature(getattr(cls, name)).parameters) == list(inspect.signature(member).parameters)
    assert {"init", "act", "update", "evaluate_rollout", "requires"} <= set(members)


@pytest.mark.parametrize("kind", MADE)
def test_shapes_are_those_of_the_protocol(kind):
    agent, env = MADE[kind]
    streams = env.num_streams
    learner = jax.eval_shape(lambda key: agent.init(env.observation_space, key), jax.random.key(0))
    actor = jax.eval_shape(lambda key: ppax.start(agent, env, NUM_STEPS, key).actor, jax.random.key(0))
    seen = actor.carry, actor.obs, actor.first, actor.action_mask
    decision = jax.eval_shape(agent.act, learner, *seen, jax.random.key(0))
    policy = jax.eval_shape(agent.policy, learner, *seen)
    assert decision.log_prob.shape == decision.value.shape == policy.value.shape == (streams,)
    assert jax.tree.structure(decision.carry) == jax.tree.structure(
        jax.eval_shape(lambda: agent.initial_carry(streams))
    )
    act = lambda learner, actor, key: ppax.collect(agent, env, learner, actor, NUM_STEPS, key).rollout  # noqa: E731
    rollout = jax.eval_shape(act, learner, actor, jax.random.key(0))
    update = jax.eval_shape(agent.update, learner, rollout, jax.random.key(0))
    assert isinstance(update, Update)
    assert jax.tree.structure(update.learner) == jax.tree.structure(learner)
    assert np.shape(agent.discount(streams)) in ((), (streams,))
    assert NUM_STEPS % agent.sequence_length(NUM_STEPS) == 0
    assert len(agent.learners(streams)) == max(1, len(agent.requires.sizes))
    annealed = jax.eval_shape(agent.annealed, jnp.float32(0.5), jnp.float32(8.0))
    assert type(annealed) is type(agent)
    assert agent.sharing == ("independent" if kind == "Independent" else "shared")
    assert (agent.pool is None) == (kind != "SelfPlay")
    agent.check()


@pytest.mark.parametrize("kind", MADE)
def test_a_rollout_is_evaluated_as_it_was_acted(kind):
    agent, env = MADE[kind]
    state = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=QUICK)(
        agent, env, num_steps=NUM_STEPS, key=jax.random.key(0)
    )

    @jax.jit
    def both(learner, actor):
        steps = ppax.collect(agent, env, learner, actor, NUM_STEPS, jax.random.key(1)).rollout.steps
        return steps, agent.evaluate_rollout(learner, steps)

    steps, (value, log_prob) = both(state.learner, state.actor)
    np.testing.assert_allclose(value, steps.value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_prob, steps.log_prob, rtol=1e-5, atol=1e-6)  # past selves are as the learners yet


@pytest.mark.parametrize("kind", MADE)
def test_devices_are_set_in_every_program(kind):
    changed = with_devices(MADE[kind][0], 2)
    is_program = lambda node: isinstance(node, Program)  # noqa: E731
    programs = [node for node in jax.tree.leaves(changed, is_leaf=is_program) if is_program(node)]
    assert programs
    assert all(program.devices == 2 for program in programs)
    assert jax.tree.structure(with_devices(changed, None)) == jax.tree.structure(MADE[kind][0])


def test_requirements_are_agents_groups_and_environments():
    required = {kind: agent.requires for kind, (agent, _) in MADE.items()}
    sizes = GROUPED.sizes
    assert required["PPO"] == Requirements()
    assert required["Independent"] == Requirements(2)
    assert required["Groups"] == Requirements(2, sizes)
    assert required["SelfPlay"] == Requirements(2, sizes, NUM_ENVS)
    for agent, env in MADE.values():
        require_fit(agent, env)
        with pytest.raises(ConfigError, match="groups"):
            require_fit(agent, GROUPED if env is ALIKE else ALIKE)


CALLED = []  # names of the methods of `Recorded` that were called


@ppax.types.part
class Recorded(ppax.PPO):
    """A PPO whose methods say that they were called."""

    def act(self, learner, carry, obs, first, action_mask, key):
        CALLED.append("act")
        return super().act(learner, carry, obs, first, action_mask, key)

    def policy(self, learner, carry, obs, first, action_mask):
        CALLED.append("policy")
        return super().policy(learner, carry, obs, first, action_mask)

    def update(self, learner, rollout, key):
        CALLED.append("update")
        return super().update(learner, rollout, key)

    def evaluate_rollout(self, learner, steps):
        CALLED.append("evaluate_rollout")
        return super().evaluate_rollout(learner, steps)

    def annealed(self, progress, env_steps):
        CALLED.append("annealed")
        return super().annealed(progress, env_steps)

    def discount(self, num_streams):
        CALLED.append("discount")
        return super().discount(num_streams)

    def init(self, observation_space, key):
        CALLED.append("init")
        return super().init(observation_space, key)


def recorded(agent):
    """The agent with `Recorded` in place of each PPO."""
    if isinstance(agent, ppax.PPO):
        return Recorded(**{field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)})
    if isinstance(agent, ppax.Groups):
        agents = {name: recorded(one) for name, one in agent.agents.items()}
        return dataclasses.replace(agent, agents=agents)
    return dataclasses.replace(agent, agent=recorded(agent.agent))


@pytest.mark.parametrize("kind", MADE)
def test_methods_of_a_subclass_of_ppo_are_called_by_all_agents(kind):
    agent, env = MADE[kind]
    agent = recorded(agent)
    CALLED.clear()

    def everything(keys):
        state = ppax.start(agent, env, NUM_STEPS, keys[0])
        actor = state.actor
        policy = agent.policy(state.learner, actor.carry, actor.obs, actor.first, actor.action_mask)
        rollout = ppax.collect(agent, env, state.learner, actor, NUM_STEPS, keys[1]).rollout
        now = agent.annealed(jnp.float32(0.5), jnp.float32(8.0))
        return (
            policy.value,
            now.update(state.learner, rollout, keys[2]),
            agent.evaluate_rollout(state.learner, rollout.steps),
        )

    jax.eval_shape(everything, jax.random.split(jax.random.key(0), 3))
    assert {"init", "act", "policy", "update", "evaluate_rollout", "annealed", "discount"} <= set(CALLED)


@ppax.types.part
class Certain(Categorical):
    """Categorical distribution that samples its likeliest action."""

    def sample(self, key):
        return self.mode()


@ppax.types.part
class Rare(CategoricalHead):
    """Head of such a distribution."""

    def __call__(self, outputs, log_std, action_mask):
        return Certain(super().__call__(outputs, log_std, action_mask).logits)


def test_on_the_host_an_own_way_to_act_or_to_sample_is_used():
    """NumPy's policy inference samples by itself, which is right for PPO's `act` and ppax's distributions alone."""
    env = ppax.make("gymnasium/CartPole-v1", 2)
    plain = ppax.PPO(network(env, hidden=(4,)))
    sampling = dataclasses.replace(plain, network=dataclasses.replace(plain.network, head=Rare(2)))
    for agent, kind in (
        (plain, HostNumpyPolicy),
        (recorded(plain), CompiledPolicy),
        (sampling, CompiledPolicy),
    ):
        learner = agent.init(env.observation_space, jax.random.key(0))
        assert type(make_policy(agent, env, learner)) is kind
    env.close()


def test_an_agent_for_another_number_of_agents_is_not_evaluated():
    agent = ppax.Independent(ppo(ALIKE), 4)
    learner = jax.eval_shape(lambda key: agent.init(ALIKE.observation_space, key), jax.random.key(0))
    for play in (ppax.evaluate, ppax.play_episodes):
        with pytest.raises(ConfigError, match=r"Independent has 4 players, Pursuit-2 has 2 agents"):
            play(agent, ALIKE, learner, jax.random.key(0), 4)


def test_independent_players_of_a_group_are_as_many_as_its_agents():
    wrong = {name: ppax.Independent(ppo(group), 2) for name, group in GROUPED.groups.items()}
    with pytest.raises(ConfigError, match=r"agents\['prey'\]: Independent has 2 players, the group has 1; write"):
        ppax.start(ppax.Groups(wrong, GROUPED.sizes), GROUPED, NUM_STEPS, jax.random.key(0))


def test_a_group_does_not_have_the_default_name_of_an_agent():
    with pytest.raises(ConfigError, match="red_0 is a group, and an agent of the group red"):
        require_distinct_names((("red", 2), ("red_0", 1)), ("x", "y", "z"))


def test_without_streams_of_past_selves_played_rows_stay():
    rollout = Rollout(
        *(jnp.zeros((3, 4)) for _ in range(1)), jnp.zeros(4), jnp.zeros((3, 4)), jnp.zeros(4), {}, jnp.ones((3, 4))
    )
    assert without_streams(rollout, slice(1, 2)).played.shape == (3, 3)
