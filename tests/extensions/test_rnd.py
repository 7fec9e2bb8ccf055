"""RND: rewards, statistics and the predictor's step in float64 by hand; agents, devices, resume, run files."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import gymnasium
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
from ppax.core.types import ConfigError, Rollout, part
from ppax.devices.layout import Program
from ppax.envs import VectorEnv, grouped, host
from ppax.extensions import RND, Before, Extension, RewardSpreading
from ppax.extensions.auxiliary_networks import minibatches as draw_minibatches
from ppax.extensions.rnd import discounted_so_far, mean_reward
from ppax.networks import network
from ppax.networks.memories import GRU
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.normalization import Normalization, normalize_rewards
from support.host_worlds import Maze as HostMaze
from support.learned import learned as learned_from
from support.worlds import QUICK, SGD, Counter

T, B, SIZE = 6, 4, 3
SPACE = spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)


class Endless(gymnasium.Env):
    """Random observations, in an episode without end."""

    observation_space, action_space = SPACE, spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=SIZE).astype(np.float32), {}

    def step(self, action):
        return self.np_random.normal(size=SIZE).astype(np.float32), 0.0, False, False, {}


@part
class Plain:
    """Network whose features are the observation."""

    def init(self, key, num_values=1):
        return {"none": jnp.zeros(1)}

    def encode(self, params, obs):
        return {"actor": obs}


PLAIN = SimpleNamespace(network=Plain())  # an agent


def rollout_of(rng, trace, outlier):
    """Random rollout: stream 0 terminates in step 1 and is truncated in step 4, with a step for each reset."""
    ended = np.zeros((2, T, B), bool)
    ended[0, 1, 0] = ended[1, 4, 0] = True
    valid = np.ones((T, B), bool)
    valid[2, 0] = valid[5, 0] = False
    obs = rng.normal(1.0, 2.0, (T + 1, B, SIZE)).astype(np.float32)
    obs[3, 0] = np.nan  # after an invalid step: the first observation of the next episode earns nothing
    obs[0, 1] = 100.0  # the first observation of a rollout belongs to the rollout before
    obs[4, 2] += outlier  # beyond 5 standard deviations
    first = np.zeros((T, B), bool)
    first[0, 0] = first[3, 0] = True  # after the resets in steps 2 and 5, the latter of the rollout before
    steps = SimpleNamespace(obs=obs[:-1], valid=valid, ended=ended.any(axis=0), first=first)
    return Rollout(steps, None, None, obs[-1], trace), obs[1:].astype(np.float64), valid, first


class InDoublePrecision:
    """RND with one hidden layer in both networks, written again in NumPy, one step and one stream at a time."""

    def __init__(self, state, gamma, rate):
        double = lambda tree: jax.tree.map(lambda x: np.asarray(x, np.float64), tree)  # noqa: E731
        self.target, self.predictor = double(state.target["head"]), double(state.predictor["head"])
        self.gamma, self.rate, self.seen, self.sums = gamma, rate, [], []
        self.trace, self.moments, self.steps = np.zeros(B), None, 0

    def layers(self, params, x):
        hidden = np.maximum(x @ params["0"]["kernel"] + params["0"]["bias"], 0.0)
        return hidden, hidden @ params["kernel"] + params["bias"]

    def learn(self, after, valid, first, episodic):
        self.seen.append(after[valid])
        every = np.concatenate(self.seen)
        x = np.clip((np.where(valid[..., None], after, 0.0) - every.mean(0)) / np.sqrt(every.var(0) + 1e-8), -5, 5)
        error = ((self.layers(self.predictor, x)[1] - self.layers(self.target, x)[1]) ** 2).mean(-1)
        for t in range(T):
            for b in range(B):
                if first[t, b] and episodic:
                    self.trace[b] = 0.0
                if valid[t, b]:
                    self.trace[b] = self.gamma * self.trace[b] + error[t, b]
                    self.sums.append(self.trace[b])
        loss = error[valid].mean()
        self.descend(x[valid])
        return np.where(valid, error, 0.0) / np.std(self.sums), loss

    def descend(self, x):
        """One step of Adam on all rows, by the chain rule."""
        hidden, out = self.layers(self.predictor, x)
        slope = 2.0 * (out - self.layers(self.target, x)[1]) / out.size
        back = (slope @ self.predictor["kernel"].T) * (hidden > 0.0)
        gradient = {"0": {"kernel": x.T @ back, "bias": back.sum(0)}, "kernel": hidden.T @ slope, "bias": slope.sum(0)}
        self.moments = self.moments or jax.tree.map(lambda g: (0.0 * g, 0.0 * g), gradient)
        pairs, self.steps = (lambda node: isinstance(node, tuple)), self.steps + 1
        self.moments = jax.tree.map(
            lambda m, g: (0.9 * m[0] + 0.1 * g, 0.999 * m[1] + 0.001 * g**2), self.moments, gradient, is_leaf=pairs
        )
        first, second = 1.0 - 0.9**self.steps, 1.0 - 0.999**self.steps
        self.predictor = jax.tree.map(
            lambda p, m: p - self.rate * (m[0] / first) / (np.sqrt(m[1] / second) + 1e-8), self.predictor, self.moments
        )


@pytest.mark.parametrize("episodic", [False, True])
def test_rewards_statistics_and_predictor_are_those_of_float64(episodic):
    rnd = RND(0.25, 0.9, 1e-2, episodic, 1, 1, embedding=5, hidden=(7,), predictor_hidden=(6,))
    state, rng = rnd.init(PLAIN, SPACE, jax.random.key(0)).state, np.random.default_rng(0)
    by_hand, fixed, trace = InDoublePrecision(state, 0.9, 1e-2), state.target, rnd.init_streams(B)
    call = jax.jit(
        lambda state, steps, last_obs, streams: rnd.before(
            PLAIN, state, streams, Rollout(SimpleNamespace(**steps), None, None, last_obs), jnp.zeros((T, B))
        )
    )
    for outlier in (0.0, 0.0, 100.0):
        rollout, after, valid, first = rollout_of(rng, trace, outlier)
        got = call(state, vars(rollout.steps), rollout.last_obs, rollout.extensions)
        reward, loss = by_hand.learn(after, valid, first, episodic)
        np.testing.assert_allclose(got.reward, 0.25 * reward, rtol=2e-5, atol=1e-6)
        assert (np.asarray(got.reward)[~valid] == 0.0).all()
        np.testing.assert_allclose(got.metrics["predictor_loss"], loss, rtol=1e-5)
        np.testing.assert_allclose(got.streams, by_hand.trace, rtol=1e-5)
        state, trace = got.state, got.streams
    np.testing.assert_allclose(state.return_stats.var.high, np.var(by_hand.sums), rtol=1e-5)
    np.testing.assert_allclose(state.obs_stats.mean.high, np.concatenate(by_hand.seen).mean(0), rtol=1e-5)
    for one, other in zip(jax.tree.leaves(state.predictor["head"]), jax.tree.leaves(by_hand.predictor), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    jax.tree.map(np.testing.assert_array_equal, state.target, fixed)


def test_discounted_sums_by_hand():
    reward, valid = jnp.array([1.0, 2.0, 5.0, 4.0]), jnp.array([True, True, False, True])
    first = jnp.array([False, False, False, True])
    last, sums = discounted_so_far(jnp.float32(8.0), reward, valid, first, 0.5, False)
    np.testing.assert_allclose(sums, [5.0, 4.5, 4.5, 6.25])
    assert last == 6.25
    last, sums = discounted_so_far(jnp.float32(8.0), reward, valid, first, 0.5, True)
    np.testing.assert_allclose(sums, [5.0, 4.5, 4.5, 4.0])
    assert last == 4.0
    # a reset between two rollouts, as of a resumed run on the host: no step of the earlier rollout ends an episode
    _, sums = discounted_so_far(jnp.float32(8.0), reward, valid, jnp.arange(4) == 0, 0.5, True)
    np.testing.assert_allclose(sums, [1.0, 2.5, 2.5, 5.25])


@pytest.mark.parametrize("episodic", [False, True])
def test_a_resumed_run_on_the_host_begins_an_episodic_sum_anew(tmp_path, episodic):
    """With a discount of 1 the sum only grows within an episode; the environments of a resumed run are reset."""

    def make():
        return host(Endless, 2)

    rnd = RND(gamma=1.0, learning_rate=0.0, episodic=episodic, embedding=4, hidden=(4,), predictor_hidden=(4,))
    agent = ppax.PPO(network(make(), hidden=(4,)), extensions=(rnd,), minibatch=Shuffle(1), num_epochs=1)
    log = Log(every=1, checkpoint_seconds=0.0, console=False)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 2]}
    half = ppax.fit(agent, make(), 3 * 16, num_steps=8, log=log, run_dir=tmp_path / "run", **stop)
    resumed = ppax.resume(tmp_path / "run", agent, make(), console=False)
    before, after = (np.asarray(run.state.actor.extensions["rnd"]) for run in (half, resumed))
    assert (after < 0.75 * before).all() if episodic else (after > before).all()


@pytest.mark.parametrize(("rows", "minibatches"), [(12, 4), (13, 4), (3, 4)])
def test_minibatches_have_each_row_once(rows, minibatches):
    drawn = draw_minibatches(jax.random.key(0), rows, minibatches)
    assert len(drawn) == minibatches
    np.testing.assert_array_equal(np.sort(drawn[drawn < rows]), np.arange(rows))


# ---------------------------------------------------------------- in the agent


SMALL = RND(learning_rate=1e-2, embedding=4, hidden=(4,), predictor_hidden=(4,), num_minibatches=2)
ALIKE = ppax.make("Pursuit-2", 4)
GROUPED = grouped(ALIKE, {"prey": [0], "hunters": [1]})
COUNTER = VectorEnv(Counter(), 4)


def ppo(env, *extensions, memory=None, **options):
    net = network(env, hidden=(4,), **({"memory": memory} if memory else {}))
    extensions = extensions or (SMALL,)
    return ppax.PPO(net, extensions=extensions, minibatch=Shuffle(2), num_epochs=2, learning_rate=1e-2, **options)


def kinds():
    groups = ppax.Groups({name: ppo(one) for name, one in GROUPED.groups.items()}, GROUPED.sizes)
    yield "PPO", ppo(COUNTER), COUNTER
    yield "recurrent", ppo(COUNTER, memory=GRU(3), seq_len=4), COUNTER
    yield "Independent", ppax.Independent(ppo(ALIKE), 2), ALIKE
    yield "Groups", groups, GROUPED
    yield "SelfPlay", ppax.SelfPlay(groups, Pool(every=1, size=2, share=0.5, opponents=1), 4), GROUPED


@functools.cache
def trained(kind):
    _, agent, env = next(one for one in kinds() if one[0] == kind)
    with jax.debug_key_reuse(False):
        state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, 8, jax.random.key(0))
        return state, *jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 3)


def states_of(learner):
    """RND's states in the learner of any agent."""
    is_learner = lambda node: isinstance(node, ppax.core.types.LearnerState)  # noqa: E731
    nodes = [node for node in jax.tree.leaves(learner, is_leaf=is_learner) if is_learner(node)]
    return [node.extensions["rnd"].state for node in nodes if node.extensions]


@pytest.mark.parametrize(
    "kind",
    [
        "PPO",
        *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("recurrent", "Independent", "Groups", "SelfPlay")),
    ],
)
def test_every_agent_trains_with_it(kind):
    before, after, metrics = trained(kind)
    assert int(after.iteration) == 3
    assert float(metrics["ratio_first_max_dev"]) < 1e-6
    assert float(metrics["intrinsic_reward"]) > 0.0
    assert float(metrics["predictor_loss"]) > 0.0
    assert len(states_of(before.learner)) == (2 if kind in ("Groups", "SelfPlay") else 1)
    for one, other in zip(states_of(before.learner), states_of(after.learner), strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.target, other.target)
        heads = [jax.tree.leaves(state.predictor["head"]) for state in (one, other)]
        assert all((x != y).any() for x, y in zip(*heads, strict=True))
        assert (other.return_stats.count[..., 0] > 0).all()
    streams = (jax.tree.leaves(state.actor.extensions) for state in (before, after))
    for one, other in zip(*streams, strict=True):
        assert one.shape == other.shape
        learned = np.asarray(other) > 0.0
        assert learned[:2].all() if kind == "SelfPlay" else learned.all()  # streams of past selves are left out


@part
class Given(Extension):
    """Reward that is added, [T, B]."""

    bonus: Any = ()

    def before(self, agent, state, streams, rollout, reward):
        return Before(state, reward + self.bonus)


def test_the_reward_of_rnd_is_added_to_the_environments():
    agent = ppo(COUNTER, RND(coef=2.0))
    state = ppax.start(agent, COUNTER, 8, jax.random.key(0))
    rollout = jax.jit(ppax.collect, static_argnums=4)(
        agent, COUNTER, state.learner, state.actor, 8, jax.random.key(1)
    ).rollout
    (own,), (streams,) = state.learner.extensions.values(), rollout.extensions.values()
    out = agent.extensions[0].before(agent, own.state, streams, rollout, rollout.steps.reward)
    added = np.asarray(out.reward - rollout.steps.reward)[np.asarray(rollout.steps.valid)]
    assert (added > 0.0).all()


def test_the_reward_is_added_to_the_environments_and_not_normalised_again():
    """Only the environment's reward is scaled and spread, where the intrinsic reward comes after spreading."""
    spread = RewardSpreading(decay=0.5)
    agent = ppo(COUNTER, spread, normalize_reward=True, advantage=ppax.advantages.GAE(0.0), gamma=0.0)
    state = ppax.start(agent, COUNTER, 8, jax.random.key(0))
    rollout = jax.jit(ppax.collect, static_argnums=4)(
        agent, COUNTER, state.learner, state.actor, 8, jax.random.key(1)
    ).rollout
    bonus = jax.random.normal(jax.random.key(2), rollout.steps.reward.shape)
    # with a discount of 0 the value target is the reward that is learned from
    plain = learned_from(agent, state.learner, rollout).batch
    more = dataclasses.replace(agent, extensions=(spread, Given(bonus, name="given")))
    states = {**state.learner.extensions, "given": ppax.extensions.ExtensionState()}
    streams = {**rollout.extensions, "given": ()}
    more = learned_from(more, state.learner._replace(extensions=states), rollout._replace(extensions=streams)).batch
    added = np.where(more.steps.valid, np.swapaxes(bonus, 0, 1).reshape(more.steps.valid.shape), 0.0)
    np.testing.assert_allclose(more.targets.value - plain.targets.value, added, atol=1e-6)
    np.testing.assert_array_equal(more.steps.reward, plain.steps.reward)  # as the environment gave it
    assert np.abs(more.targets.advantage - plain.targets.advantage).max() > 0.1
    scale = 1.0 / np.sqrt(np.var(rollout.reward_trace[rollout.steps.valid]))
    rewarded = normalize_rewards(state.learner, rollout, Normalization())
    np.testing.assert_allclose(rewarded.learner.reward_stats.var.high, scale**-2, rtol=1e-5)


def test_a_forced_reset_does_not_change_the_last_observation():
    agent = ppo(COUNTER)
    state = dataclasses.replace(ppax.start(agent, COUNTER, 8, jax.random.key(0)))
    collected = ppax.collect(agent, COUNTER, state.learner, state.actor, 8, jax.random.key(1))
    np.testing.assert_array_equal(collected.rollout.last_obs, collected.actor.obs)
    cut = ppax.training.collection.force_reset(agent, COUNTER, collected, jnp.bool_(True), jax.random.key(2))
    np.testing.assert_array_equal(cut.rollout.last_obs, collected.actor.obs)
    assert (np.asarray(cut.actor.obs) != np.asarray(collected.actor.obs)).any()


@pytest.mark.nightly
def test_two_devices_learn_what_one_learns():
    learned = []
    for devices in (1, 2):
        agent = ppo(COUNTER, program=Program(devices=devices), optimizer=SGD())
        state = ppax.start(agent, COUNTER, 7 * 2, jax.random.key(0))
        learned.append(jax.jit(ppax.train, compiler_options=QUICK)(agent, COUNTER, state, 1))
    (one, metrics), (two, others) = learned
    for name in ("intrinsic_reward", "predictor_loss"):
        np.testing.assert_allclose(metrics[name], others[name], rtol=1e-4)
    both = [one.learner.extensions["rnd"] for one in (one, two)]
    states = [
        learner._replace(extensions=own._replace(state=own.state._replace(key=())))
        for learner, own in zip((one.learner, two.learner), both, strict=True)
    ]
    for x, y in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose(one.actor.extensions["rnd"], two.actor.extensions["rnd"], rtol=1e-4)


def test_weights_of_zero_learn_what_no_intrinsic_reward_learns(vmapped_keys):
    agent = ppo(COUNTER, dataclasses.replace(SMALL, coef=jnp.array([0.0, 1.0])))
    states = ppax.start_sweep(agent, COUNTER, 8, jnp.stack([jax.random.key(0)] * 2))
    swept = jax.jit(ppax.sweep, compiler_options=QUICK)(agent, COUNTER, states, 2).state.learner.params
    alone = dataclasses.replace(agent, extensions=())
    state = ppax.start(alone, COUNTER, 8, jax.random.key(0))
    plain = jax.jit(ppax.train, compiler_options=QUICK)(alone, COUNTER, state, 2).state.learner.params
    pairs = list(zip(jax.tree.leaves(swept), jax.tree.leaves(plain), strict=True))
    assert all(np.allclose(x[0], y, atol=1e-5) for x, y in pairs)
    assert not all(np.allclose(x[1], y, atol=1e-4) for x, y in pairs)


def test_an_iteration_whose_predictor_is_not_finite_is_discarded():
    state = ppax.start(ppo(COUNTER), COUNTER, 8, jax.random.key(0))
    agent = ppo(COUNTER, dataclasses.replace(SMALL, learning_rate=jnp.float32(jnp.inf)))
    after, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, COUNTER, state, 1)
    assert int(after.iteration) == 0
    assert np.isnan(metrics["grad_norm"])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(after.learner.extensions["rnd"].state.predictor))
    np.testing.assert_array_equal(after.actor.extensions["rnd"], state.actor.extensions["rnd"])


@pytest.mark.parametrize("kind", ["compiled", pytest.param("host", marks=pytest.mark.nightly)])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, kind):
    env = COUNTER if kind == "compiled" else host(HostMaze, 4)
    agent, log = ppo(env), Log(every=1, checkpoint_seconds=0.0, console=False)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 2]}
    whole = ppax.fit(agent, env, 4 * 32, num_steps=8, log=log, run_dir=tmp_path / "whole")
    assert "intrinsic_reward" in whole.history[-1]
    assert ppax.load(tmp_path / "whole").act(np.zeros(env.observation_space.shape, np.float32)) in (0, 1, 2)
    if kind == "host":  # environments are reset at a resume: the run cannot be the same
        return
    ppax.fit(agent, env, 4 * 32, num_steps=8, log=log, run_dir=tmp_path / "half", **stop)
    resumed = ppax.resume(tmp_path / "half", agent, env, console=False)
    as_bytes = lambda x: np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)  # noqa: E731
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(whole.state), jax.tree.leaves(resumed.state), strict=True
    ):
        assert as_bytes(x).tobytes() == as_bytes(y).tobytes(), jax.tree_util.keystr(path)


def test_the_metric_is_the_mean_over_valid_steps():
    valid = jnp.array([[True, False], [True, True]])
    assert float(mean_reward(jnp.array([[1.0, 2.0], [4.0, 9.0]]), valid)) == pytest.approx(14.0 / 3.0)


def test_run_files_and_the_command_line_choose_it():
    made = RND(coef=0.25, hidden=(8, 8))
    table = {"coef": 0.25, "hidden": [8, 8]}
    agent = config.build({"agent": {"extensions": {"rnd": table}}}).agent
    assert agent.extensions == (made,)
    described = config.describe(agent)["extensions"]["rnd"]
    assert {name: described[name] for name in table} == table | {"hidden": described["hidden"]}
    line = ["CartPole-v1", "--agent.extensions", "rnd", "--agent.extensions.rnd.coef", "0.125"]
    assert config.build(parse_run("train", line, add_train)[1]).agent.extensions == (RND(coef=0.125),)
    with pytest.raises(ConfigError, match="must be at least 0"):
        config.build({"agent": {"extensions": {"rnd": {"coef": -1.0}}}})


def test_no_extension_is_refused():
    with pytest.raises(
        ConfigError, match=r"agent\.extensions: 0\.5 is no extension: write a class, class .*\(ppax\.Extension\)"
    ):
        ppax.start(ppo(COUNTER, 0.5), COUNTER, 8, jax.random.key(0))


@pytest.mark.nightly
@pytest.mark.parametrize("memory", [None, GRU(3)], ids=["feedforward", "recurrent"])
def test_the_self_test_passes(memory):
    report = ppax.selftest(ppo(COUNTER, memory=memory), COUNTER, 32, jax.random.key(0))
    assert report.passed, report


def test_observations_of_every_kind_are_read():
    """Categories, images and numbers at once: the encoder is the agent's own."""
    space = spaces.Dict(
        {
            "kind": spaces.Discrete(3, start=1),
            "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "x": spaces.Box(-1.0, 1.0, (2,)),
        }
    )
    env = SimpleNamespace(observation_space=space, action_space=spaces.Discrete(2))
    net = network(env, hidden=(4,))
    agent = SimpleNamespace(network=net)
    state = SMALL.init(agent, space, jax.random.key(0)).state
    rng = np.random.default_rng(0)
    obs = {"kind": rng.integers(1, 4, (3, 2)), "image": rng.integers(0, 256, (3, 2, 8, 8, 3)).astype(np.uint8)}
    obs["x"] = rng.normal(size=(3, 2, 2)).astype(np.float32)
    obs = jax.tree.map(jnp.asarray, obs)
    steps = SimpleNamespace(
        obs=jax.tree.map(lambda x: x[:2], obs), valid=jnp.ones((2, 2), bool), first=jnp.zeros((2, 2), bool)
    )
    rollout = Rollout(steps, None, None, jax.tree.map(lambda x: x[2], obs), SMALL.init_streams(2))
    reward = SMALL.before(agent, state, rollout.extensions, rollout, jnp.zeros((2, 2))).reward
    assert reward.shape == (2, 2)
    assert len(np.unique(reward)) == 4
