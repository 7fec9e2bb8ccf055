"""Own critic of an intrinsic reward: advantages of two streams in float64 by hand, known values, agents, resume."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.agents.self_play import Pool
from ppax.cli.options import add_train, parse_run
from ppax.config import Log
from ppax.core.types import ConfigError, Rollout, Scalar, number, part
from ppax.devices.layout import Program
from ppax.envs import VectorEnv, grouped, host
from ppax.extensions import RND, Before, Extension, FeatureNorm, OwnCritic
from ppax.networks import network
from ppax.networks.memories import GRU
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.recompute import Epoch, Minibatch, Never
from ppax.training.collection import collect
from support.host_worlds import Maze as HostMaze
from support.learned import learned as learned_from
from support.worlds import QUICK, SGD, Counter

T, B, SIZE = 7, 3, 2
SPACE = spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
COUNTER = VectorEnv(Counter(), 4)
ALIKE = ppax.make("Pursuit-2", 4)
GROUPED = grouped(ALIKE, {"prey": [0], "hunters": [1]})


@part
class Plain:
    """Network whose features are the observation."""

    def init(self, key, num_values=1):
        return {"none": jnp.zeros(1)}

    def encode(self, params, obs):
        return {"actor": obs}


PLAIN = SimpleNamespace(network=Plain())  # an agent


@part
class Given(Extension):
    """Intrinsic reward `size` times the first number of the observation plus `base`; no state."""

    size: Scalar = number("factor of the observation", default=1.0)
    base: Scalar = number("added to each", default=0.0)

    def before(self, agent, state, streams, rollout, reward):
        return Before(state, reward + self.size * rollout.steps.obs[..., 0] + self.base)


SMALL = OwnCritic(
    RND(learning_rate=1e-2, embedding=4, hidden=(4,), predictor_hidden=(4,), num_minibatches=2),
    learning_rate=1e-2,
    num_minibatches=2,
    hidden=(4,),
)


def ppo(env, *extensions, memory=None, **options):
    net = network(env, hidden=(4,), **({"memory": memory} if memory else {}))
    extensions = extensions or (SMALL,)
    return ppax.PPO(net, extensions=extensions, minibatch=Shuffle(2), num_epochs=2, learning_rate=1e-2, **options)


def rollout_of(rng):
    """Random steps: episodes end with and without a step for the reset, at the rollout's end, and before an absence.

    Those of stream 0 terminate and are truncated, the others are truncated; both flags are a termination.
    """
    valid, terminated, truncated = np.ones((T, B), bool), np.zeros((T, B), bool), np.zeros((T, B), bool)
    truncated[1, 0] = truncated[5, 0] = truncated[3, 1] = truncated[6, 2] = True
    terminated[5, 0] = True
    valid[2, 0] = valid[6, 0] = valid[4, 1] = valid[5, 1] = False
    obs = rng.normal(1.0, 2.0, (T + 1, B, SIZE)).astype(np.float32)
    obs[5, 1] = np.nan  # absent
    flags = {"valid": valid, "terminated": terminated, "ended": terminated | truncated}
    return SimpleNamespace(obs=obs[:-1], final_value=None, **flags), obs[-1]


def in_float64(critic, steps, last_obs, reward, seen, gamma, decay, episodic):
    """Advantages [T, B] of the intrinsic stream: the valid steps of a stream in a list, backwards."""
    critic = jax.tree.map(lambda x: np.asarray(x, np.float64), critic["head"])
    every = np.concatenate(seen)

    def value(obs):
        x = np.clip((obs - every.mean(0)) / np.sqrt(every.var(0) + 1e-8), -10, 10)
        hidden = np.maximum(x @ critic["0"]["kernel"] + critic["0"]["bias"], 0.0)
        return float((hidden @ critic["kernel"] + critic["bias"])[0])

    out = np.zeros((T, B))
    for b in range(B):
        rows = [t for t in range(T) if steps.valid[t, b]]
        later = 0.0
        for i in reversed(range(len(rows))):
            t, cut = rows[i], episodic and steps.ended[rows[i], b]
            if episodic or i + 1 == len(rows):  # the observation after the step, the final one of an episode included
                after = value(steps.obs[t + 1, b] if t + 1 < T else last_obs[b])
            else:
                after = value(steps.obs[rows[i + 1], b])
            after = 0.0 if episodic and steps.terminated[t, b] else after
            later = reward[t, b] + gamma * after - value(steps.obs[t, b]) + gamma * decay * later * (not cut)
            out[t, b] = later
    return out


@pytest.mark.parametrize("episodic", [False, True])
def test_advantages_are_those_of_float64(episodic):
    own = OwnCritic(Given(0.5, 0.1), 0.9, 0.8, 1e-2, episodic, num_epochs=1, num_minibatches=1, hidden=(5,))
    state, rng, seen = own.init(PLAIN, SPACE, jax.random.key(0)).state, np.random.default_rng(0), []
    call = jax.jit(
        lambda state, steps, last_obs, reward: own.before(
            PLAIN, state, (), Rollout(SimpleNamespace(**steps), None, None, last_obs), reward
        )
    )
    extrinsic = np.full((T, B), 7.0, np.float32)
    for _ in range(3):
        steps, last_obs = rollout_of(rng)
        seen.append(steps.obs[steps.valid].astype(np.float64))
        got = call(state, vars(steps), last_obs, extrinsic)
        reward = 0.5 * steps.obs[..., 0].astype(np.float64) + 0.1
        wanted = in_float64(state.critic, steps, last_obs, reward, seen, 0.9, 0.8, episodic)
        np.testing.assert_allclose(got.extras, wanted, rtol=2e-4, atol=2e-5)
        assert (np.asarray(got.extras)[~steps.valid] == 0.0).all()
        np.testing.assert_allclose(got.metrics["intrinsic_reward"], reward[steps.valid].mean(), rtol=1e-5)
        # before its only gradient step the critic's loss is half the mean square of these advantages
        np.testing.assert_allclose(
            got.metrics["intrinsic_value_loss"], 0.5 * (wanted[steps.valid] ** 2).mean(), rtol=1e-3
        )
        np.testing.assert_array_equal(got.reward, extrinsic)
        before = state.critic
        state = got.state
        moved = [
            np.abs(x - y).max()
            for x, y in zip(*map(jax.tree.leaves, (before["head"], state.critic["head"])), strict=True)
        ]
        assert min(moved) > 1e-3


def own_advantage(own, state, obs, **fields):
    """Advantages [T] of one stream with observations [T + 1, 1, n]."""
    steps = SimpleNamespace(obs=jnp.asarray(obs[:-1]), **jax.tree.map(jnp.asarray, fields))
    rollout = Rollout(steps, None, None, jnp.asarray(obs[-1]))
    call = jax.jit(lambda: own.before(PLAIN, state, (), rollout, jnp.zeros(steps.valid.shape)).extras)
    return np.asarray(call())[:, 0]


ENDS = {
    "with a step for the reset": (2, None, True),
    "at the rollout's end": (5, None, False),
    "in a step with the reset": (2, np.zeros((6, 1), np.float32), False),
    "in the last step, with the reset": (5, np.zeros((6, 1), np.float32), False),
}


@pytest.mark.parametrize("episodic", [False, True])
@pytest.mark.parametrize("name", ENDS)
def test_the_exact_value_of_a_constant_reward_has_no_advantage_at_a_time_limit(name, episodic):
    """A reward of 1, gamma 0.9: V = 10 where an episode is cut; a termination has the advantage 1 - 10 if it counts."""
    at, final_value, resets = ENDS[name]
    own = OwnCritic(Given(0.0, 1.0), 0.9, 0.5, 1e-2, episodic, num_epochs=1, num_minibatches=1, hidden=(5,))
    state = own.init(PLAIN, SPACE, jax.random.key(0)).state
    head = jax.tree.map(jnp.zeros_like, state.critic["head"]) | {"bias": jnp.array([10.0])}
    state = state._replace(critic=state.critic | {"head": head})
    obs = np.random.default_rng(0).normal(size=(7, 1, SIZE)).astype(np.float32)
    valid, ended = np.ones((6, 1), bool), np.arange(6)[:, None] == at
    valid[at + 1 :][:1] &= not resets

    def advantage(terminated):
        return own_advantage(own, state, obs, valid=valid, terminated=terminated, ended=ended, final_value=final_value)

    np.testing.assert_allclose(advantage(np.zeros_like(ended)), 0.0, atol=1e-5)
    by_hand = np.where(np.arange(6) <= at, -9.0 * 0.45 ** (at - np.arange(6.0)), 0.0) if episodic else np.zeros(6)
    np.testing.assert_allclose(advantage(ended), by_hand, atol=1e-5)


def test_after_a_reset_in_the_same_step_the_value_is_that_before_the_end():
    """There the final observation is not in the rollout: with V the first number, the advantage is r + gamma V - V."""
    own = OwnCritic(Given(0.0, 1.0), 0.9, 0.0, 1e-2, True, num_epochs=1, num_minibatches=1, hidden=())
    state = own.init(PLAIN, SPACE, jax.random.key(0)).state
    head = {"kernel": jnp.array([[1.0], [0.0]]), "bias": jnp.zeros(1)}
    state = state._replace(critic=state.critic | {"head": head})
    obs = np.random.default_rng(0).normal(size=(5, 1, SIZE)).astype(np.float32)
    ended, flag = np.arange(4)[:, None] == 1, np.zeros((4, 1), bool)
    got = own_advantage(own, state, obs, valid=~flag, terminated=flag, ended=ended, final_value=np.zeros((4, 1)))
    value = (obs[:, 0, 0] - obs[:-1, 0, 0].mean()) / obs[:-1, 0, 0].std()
    after = np.where(ended[:, 0], value[:-1], value[1:])
    np.testing.assert_allclose(got, 1.0 + 0.9 * after - value[:-1], rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("terminates", [False, True])
def test_values_of_a_constant_reward_go_on_through_episode_ends(terminates):
    """Episodes of three steps with a reward of 1 each: V = 1 / (1 - 0.8) = 5, less than 3 where terminations count."""
    values, env = {}, VectorEnv(Counter(terminates=terminates), 4)
    for episodic in (False, True):
        own = OwnCritic(Given(0.0, 1.0), 0.8, 0.9, 3e-2, episodic, num_epochs=8, hidden=(8,))
        agent = ppo(env, own)
        state = ppax.start(agent, env, 32, jax.random.key(0))
        learner = (
            jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 60)
            .state.learner.extensions["own_critic"]
            .state
        )
        obs = jnp.array([[0.0, 0.5], [1.0, 0.5], [2.0, 0.5]])
        values[episodic] = np.asarray(own._values(agent.network, learner, learner.critic, obs))
    np.testing.assert_allclose(values[False], 5.0, atol=0.4)
    if terminates:
        np.testing.assert_allclose(values[True], [1.0 + 0.8 + 0.64, 1.8, 1.0], atol=0.4)
    else:
        np.testing.assert_allclose(values[True], 5.0, atol=0.6)


# ---------------------------------------------------------------- in the agent


@pytest.mark.parametrize(
    ("recompute", "memory"),
    [
        (Never(), None),
        (Epoch(), None),
        (Minibatch(), None),
        pytest.param(Epoch(), GRU(3), marks=pytest.mark.nightly, id="recurrent"),
    ],
)
def test_the_advantages_are_added_and_value_targets_stay(recompute, memory):
    """Also where targets are recomputed: with the parameters that acted they are those of before."""
    agent = ppo(COUNTER, memory=memory, recompute=recompute, seq_len=4)
    state = ppax.start(agent, COUNTER, 8, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    rollout = gather(agent, COUNTER, state.learner, state.actor, 8, jax.random.key(1)).rollout
    before = jax.jit(agent.extensions[0].before, compiler_options=QUICK)
    own = state.learner.extensions["own_critic"].state
    bonus = before(agent, own, rollout.extensions["own_critic"], rollout, rollout.steps.reward).extras
    assert np.abs(bonus).max() > 1e-2
    more = learned_from(agent, state.learner, rollout)
    plain = learned_from(dataclasses.replace(agent, extensions=()), state.learner._replace(extensions={}), rollout)
    (steps, targets, _), (_, other, _) = more.batch, plain.batch
    sequences = np.swapaxes(np.where(rollout.steps.valid, bonus, 0.0), 0, 1).reshape(-1, steps.valid.shape[1])
    np.testing.assert_allclose(targets.advantage - other.advantage, sequences, atol=1e-5)
    np.testing.assert_array_equal(targets.value, other.value)
    if recompute == Never():
        assert more.recomputed is None
        return
    fresh = more.recomputed.advantage
    if recompute == Epoch():
        np.testing.assert_allclose(fresh, targets.advantage, atol=1e-4)
    np.testing.assert_allclose(fresh - plain.recomputed.advantage, sequences, atol=1e-4)


@pytest.mark.nightly
def test_a_weight_of_zero_learns_what_no_intrinsic_reward_learns():
    learned = {}
    zero = OwnCritic(dataclasses.replace(SMALL.reward, coef=0.0), learning_rate=0.0)
    silent = dataclasses.replace(zero, gamma=0.0, gae_lambda=0.0)
    for name, extensions in (("zero", (silent,)), ("none", ()), ("some", (SMALL,))):
        agent = dataclasses.replace(ppo(COUNTER), extensions=extensions)
        state = ppax.start(agent, COUNTER, 8, jax.random.key(0))
        if name == "zero":  # V = 0 everywhere
            own = state.learner.extensions["own_critic"]
            critic = jax.tree.map(jnp.zeros_like, own.state.critic)
            own = own._replace(state=own.state._replace(critic=critic))
            state = dataclasses.replace(state, learner=state.learner._replace(extensions={"own_critic": own}))
        result = jax.jit(ppax.train, compiler_options=QUICK)(agent, COUNTER, state, 2)
        learned[name] = jax.tree.leaves(result.state.learner.params)
        assert float(result.metrics["ratio_first_max_dev"]) < 1e-6
    for x, y in zip(learned["zero"], learned["none"], strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    assert any(np.abs(x - y).max() > 1e-4 for x, y in zip(learned["some"], learned["none"], strict=True))


def kinds():
    groups = ppax.Groups({name: ppo(one) for name, one in GROUPED.groups.items()}, GROUPED.sizes)
    yield "recurrent", ppo(COUNTER, memory=GRU(3), seq_len=4, recompute=Epoch()), COUNTER
    yield "Independent", ppax.Independent(ppo(ALIKE), 2), ALIKE
    yield "Groups", groups, GROUPED
    yield "SelfPlay", ppax.SelfPlay(groups, Pool(every=1, size=2, share=0.5, opponents=1), 4), GROUPED


@pytest.mark.parametrize("kind", ["recurrent", "Independent", "Groups", "SelfPlay"])
@pytest.mark.nightly
def test_every_agent_trains_with_it(kind):
    _, agent, env = next(one for one in kinds() if one[0] == kind)
    with jax.debug_key_reuse(False):
        state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, 8, jax.random.key(0))
        after, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 3)
    assert int(after.iteration) == 3
    assert float(metrics["ratio_first_max_dev"]) < 1e-6
    assert float(metrics["intrinsic_value_loss"]) > 0.0
    assert float(metrics["predictor_loss"]) > 0.0


@pytest.mark.nightly
def test_two_devices_learn_what_one_learns():
    learned = []
    for devices in (1, 2):
        agent = ppo(COUNTER, program=Program(devices=devices), optimizer=SGD())
        state = ppax.start(agent, COUNTER, 7 * 2, jax.random.key(0))
        learned.append(jax.jit(ppax.train, compiler_options=QUICK)(agent, COUNTER, state, 1).state.learner)
    one, two = ((x.params, x.extensions["own_critic"].state.critic) for x in learned)
    for x, y in zip(*map(jax.tree.leaves, (one, two)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4, rtol=1e-3)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    agent, log = ppo(COUNTER), Log(every=1, checkpoint_seconds=0.0, console=False)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 2]}
    whole = ppax.fit(agent, COUNTER, 4 * 32, num_steps=8, log=log, run_dir=tmp_path / "whole")
    ppax.fit(agent, COUNTER, 4 * 32, num_steps=8, log=log, run_dir=tmp_path / "half", **stop)
    resumed = ppax.resume(tmp_path / "half", agent, COUNTER, console=False)
    as_bytes = lambda x: np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)  # noqa: E731
    for x, y in zip(*(jax.tree.leaves(run.state.learner) for run in (whole, resumed)), strict=True):
        assert as_bytes(x).tobytes() == as_bytes(y).tobytes()
    assert {"intrinsic_reward", "intrinsic_value_loss", "predictor_loss"} <= set(whole.history[-1])
    assert ppax.load(tmp_path / "whole").learner.extensions == {}


@pytest.mark.nightly
def test_environments_on_the_host():
    env = host(HostMaze, 4)
    run = ppax.fit(ppo(env), env, 2 * 32, num_steps=8, log=Log(every=1, console=False))
    assert run.history[-1]["intrinsic_value_loss"] > 0.0


def test_run_files_and_the_command_line_choose_it():
    table = {"gamma": 0.9, "reward": {"part": "rnd", "coef": 0.25}}
    agent = config.build({"agent": {"extensions": {"own_critic": table}}}).agent
    assert agent.extensions == (OwnCritic(RND(coef=0.25), gamma=0.9),)
    described = config.describe(agent)["extensions"]["own_critic"]
    assert described["reward"]["coef"] == 0.25
    line = ["CartPole-v1", "--agent.extensions", "own_critic", "--agent.extensions.own_critic.reward.coef", "0.125"]
    assert config.build(parse_run("train", line, add_train)[1]).agent.extensions == (OwnCritic(RND(coef=0.125)),)


def test_a_critic_of_no_reward_is_refused():
    agent = ppo(COUNTER, OwnCritic(FeatureNorm()))
    state = ppax.start(agent, COUNTER, 8, jax.random.key(0))
    with pytest.raises(ConfigError, match=r"own_critic\.reward: FeatureNorm gives no rewards"):
        jax.eval_shape(lambda state: ppax.train(agent, COUNTER, state, 1), state)
