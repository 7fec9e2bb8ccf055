"""What normalisation leaves out, when its statistics stop, and given statistics: against moments in NumPy float64."""

import dataclasses
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.core.types import ConfigError, LearnerState, Rollout, Transition
from ppax.networks import mlp
from ppax.networks.observations import entries
from ppax.policy.bundle.numpy_policy import NumpyPolicy
from ppax.ppo import normalization
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.normalization import Normalization, NoStats, PartStats

VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
NAMED = spaces.Dict(goal=VECTOR, kind=spaces.Discrete(3), state=spaces.Dict(a=VECTOR, image=spaces.Box(0, 1, (2, 3))))
RNG = np.random.default_rng(0)
ROLLOUTS = RNG.normal([5.0, -30.0, 0.0, 2.0], [2.0, 0.5, 0.1, 7.0], (3, 6, 4, 4)).astype(np.float32)
VALID = RNG.random((3, 6, 4)) < 0.8


def learner_of(chosen, space=VECTOR, of_reward=False):
    obs_stats, reward_stats = normalization.initial(space, not of_reward, of_reward, chosen)
    return LearnerState(params=(), opt_state=(), obs_stats=obs_stats, reward_stats=reward_stats)


def steps_of(obs, valid, reward=None):
    names = ("action", "log_prob", "value", "reward", "terminated", "truncated", "first", "valid", "carry")
    nothing = dict.fromkeys(names)
    return Transition(obs=obs, **nothing | {"valid": jnp.asarray(valid), "reward": reward})


def after(chosen, rollouts=3, space=VECTOR):
    learner = learner_of(chosen, space)
    for obs, valid in zip(ROLLOUTS[:rollouts], VALID[:rollouts], strict=True):
        learner = normalization.with_obs_stats(learner, steps_of(jnp.asarray(obs), valid), chosen)
    return learner.obs_stats


def scaled(x, rows):
    """Standardise `x` by the moments of the samples `rows`, in float64."""
    rows = rows.astype(np.float64)
    return (x - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-8)


@pytest.mark.parametrize("freeze", [None, 1, int(VALID[0].sum()), 40, 3 * 10**9])
def test_statistics_stop_after_so_many_steps(freeze):
    """A rollout counts wholly if fewer than `freeze` samples came before it."""
    counts = VALID.sum(axis=(1, 2))
    before = np.concatenate([[0], np.cumsum(counts)[:-1]])
    used = before < (freeze or np.inf)
    rows = np.concatenate([obs[valid] for obs, valid, use in zip(ROLLOUTS, VALID, used, strict=True) if use])
    stats, x = after(Normalization(freeze_obs=freeze)), ROLLOUTS[2, 0]
    assert stats.count[0] == len(rows)
    assert {None: 3, 1: 1, counts[0]: 1, 40: 3, 3 * 10**9: 3}[freeze] == used.sum()
    np.testing.assert_allclose(
        normalization.normalize_obs(stats, x), scaled(x, rows).clip(-10, 10), rtol=2e-5, atol=2e-5
    )


def test_frozen_statistics_stay_bit_for_bit():
    chosen = Normalization(freeze_obs=1)
    for one, other in zip(jax.tree.leaves(after(chosen, 1)), jax.tree.leaves(after(chosen, 3)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("skip", "left"), [(("1",), [1]), (("1:3",), [1, 2]), (("0", "3"), [0, 3]), (("2:4", "3"), [2, 3])]
)
def test_entries_that_are_left_out_stay_as_they_are(skip, left):
    stats, x = after(Normalization(skip=skip)), np.float32(ROLLOUTS[0] * 3)
    found = np.asarray(normalization.normalize_obs(stats, jnp.asarray(x)))
    kept = [i for i in range(4) if i not in left]
    want = scaled(x, ROLLOUTS[VALID]).clip(-10, 10)
    np.testing.assert_allclose(found[..., kept], want[..., kept], rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(found[..., left], x[..., left], "also beyond 10")
    assert np.abs(x[..., left]).max() > 10 or 2 in left


def test_entries_of_a_dict_are_left_out_by_name():
    chosen = Normalization(skip=("goal.1:3", "state.image"))
    stats = normalization.obs_stats_of(NAMED, chosen)
    assert isinstance(stats["goal"], PartStats)
    np.testing.assert_array_equal(stats["goal"].kept, [True, False, False, True])
    assert [type(stats["kind"]), type(stats["state"]["image"])] == [NoStats, NoStats]
    assert isinstance(stats["state"]["a"], normalization.RunningStats)
    whole = normalization.obs_stats_of(NAMED, Normalization(skip=("state", "goal.0:4")))
    assert {type(x) for x in jax.tree.leaves(whole, is_leaf=normalization.is_stats)} == {NoStats}
    rows = jnp.ones((2, 3, 4))
    obs = {"goal": rows, "kind": jnp.ones((2, 3)), "state": {"a": rows, "image": jnp.ones((2, 3, 2, 3))}}
    new = normalization.update_obs_stats(stats, obs, jnp.ones((2, 3), bool))
    assert new["goal"].stats.count[0] == new["state"]["a"].count[0] == 6
    np.testing.assert_array_equal(normalization.normalize_obs(new, obs)["goal"][0, 0], [0, 1, 1, 0])


def test_given_statistics_are_constant():
    mean, std = np.array([5.0, -30.0, 1e5 + 0.123, 2.0]), np.array([2.0, 0.5, 0.1, 7.0])
    stats = after(Normalization(mean=tuple(mean), std=tuple(std)))
    x = (mean + std * RNG.normal(size=(7, 4))).astype(np.float32)
    want = (x.astype(np.float64) - mean) / std
    np.testing.assert_allclose(normalization.normalize_obs(stats, jnp.asarray(x)), want, rtol=1e-5, atol=1e-5)
    assert stats.count[0] == 0


def test_given_statistics_are_read_from_a_file(tmp_path):
    np.savez(tmp_path / "stats.npz", mean=[1.0, 2.0], std=np.float32([3.0, 4.0]))
    assert Normalization.from_npz(tmp_path / "stats.npz", skip=("0",)) == Normalization(("0",), (1.0, 2.0), (3.0, 4.0))
    np.savez(tmp_path / "wrong.npz", mean=[1.0], var=[1.0])
    with pytest.raises(ConfigError, match=r"no array 'std', but mean, var"):
        Normalization.from_npz(tmp_path / "wrong.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("mean std")
    for name in ("one.npy", "text.npz", "missing.npz"):
        with pytest.raises(ConfigError, match=rf"{name}.*; must be a NumPy file \(\.npz\) with arrays mean and std"):
            Normalization.from_npz(tmp_path / name)


@pytest.mark.parametrize("std", [1e-3, 1e-5, 1e-8])
def test_a_small_std_is_taken_as_it_is_given(std):
    stats = after(Normalization(mean=(0.0,) * 4, std=(std,) * 4))
    x = jnp.float32([std, -std, 2 * std, 0.0])
    np.testing.assert_allclose(normalization.normalize_obs(stats, x), [1.0, -1.0, 2.0, 0.0], rtol=1e-6)
    chosen, reward = Normalization(reward_std=std), jnp.full((4, 2), 3.0 * std)
    rollout = Rollout(steps_of(None, np.ones((4, 2), bool), reward), None, reward)
    found = normalization.normalize_rewards(learner_of(chosen, of_reward=True), rollout, chosen).reward
    np.testing.assert_allclose(found, 3.0, rtol=1e-6)


@pytest.mark.parametrize(("high", "scale"), [(255, 255), (200, 1)])
def test_bytes_that_are_left_out_reach_the_network_as_without_normalisation(high, scale):
    """Whether all entries or some are left out: bytes of the whole range between 0 and 1."""
    space, x = spaces.Box(0, high, (4,), np.uint8), jnp.array([200, 100, 50, 128], jnp.uint8)
    (entry,) = entries(space)
    for skip in (("0:2",), ("0:4",)):
        stats = normalization.obs_stats_of(space, Normalization(skip=skip))
        assert isinstance(stats, PartStats | NoStats)
        read = entry.read(normalization.normalize_obs(stats, x), jnp.float32)
        np.testing.assert_allclose(read[:2], np.float64(x[:2]) / scale, rtol=1e-6)


@pytest.mark.parametrize(
    ("chosen", "samples"),
    [({"freeze_reward": 5}, 8), ({"freeze_reward": 2**31}, 16), ({}, 16), ({"reward_std": 2.5}, 0)],
)
def test_statistics_of_rewards_stop_or_are_given(chosen, samples):
    chosen, traces = Normalization(**chosen), RNG.normal(3.0, 2.0, (2, 4, 2)).astype(np.float32)
    learner, reward = learner_of(chosen, of_reward=True), jnp.ones((4, 2))
    for trace in traces:
        rollout = Rollout(steps_of(None, np.ones((4, 2), bool), reward), None, jnp.asarray(trace))
        learner, found = normalization.normalize_rewards(learner, rollout, chosen)
    std = 2.5 if samples == 0 else traces.reshape(-1)[:samples].astype(np.float64).std()
    np.testing.assert_allclose(found, 1.0 / std, rtol=1e-5)
    assert learner.reward_stats.count[0] == samples


# ---------------------------------------------------------------- runs


@pytest.mark.usefixtures("cached_programs")
def test_acting_export_resume_and_warm_start_know_them(tmp_path):
    """A policy exported to NumPy acts as the trained one; statistics of a resumed run stay; a warm start takes them."""
    chosen = Normalization(skip=("2",), freeze_obs=30)
    env = ppax.make("Pendulum-v1", 4)
    agent = ppax.PPO(
        mlp(env, hidden=(4,)), normalize_obs=True, normalization=chosen, minibatch=Shuffle(2), num_epochs=1
    )
    log = ppax.Log(every=1, console=False)
    run = ppax.fit(agent, env, total_steps=64, num_steps=8, run_dir=tmp_path / "run", log=log)
    stats = run.state.learner.obs_stats
    assert stats.stats.count[0] == 32
    resumed = ppax.resume(tmp_path / "run", total_steps=128)
    for one, other in zip(jax.tree.leaves(stats), jax.tree.leaves(resumed.state.learner.obs_stats), strict=True):
        np.testing.assert_array_equal(one, other)
    policy = ppax.load(tmp_path / "run")
    written = policy.export(tmp_path / "policy.zip")
    obs = np.float32([[0.1, 0.2, 30.0], [0.9, -0.5, -40.0]])
    want = policy.act(obs, deterministic=True)
    np.testing.assert_allclose(ppax.load(tmp_path / "policy.zip").act(obs, deterministic=True), want, atol=1e-6)
    exported = NumpyPolicy(written.path)({"obs": obs, "first": np.ones(2, bool)})
    np.testing.assert_allclose(exported["action"], want, atol=1e-5)
    warm = ppax.fit(agent, env, total_steps=32, num_steps=8, seed=5, init_from=tmp_path / "run", log=log)
    np.testing.assert_array_equal(warm.state.learner.obs_stats.stats.mean.high, stats.stats.mean.high)
    plan = tomllib.loads((tmp_path / "run/run.toml").read_text())["agent"]["normalization"]
    assert (plan["skip"], plan["freeze_obs"], plan["mean"]) == (["2"], 30, "none")


def test_run_files_name_them():
    text = '[agent]\nnormalize_obs = true\n[agent.normalization]\nskip = ["1:3"]\nfreeze_obs = 100\n'
    agent = config.build(tomllib.loads('env = "Pendulum-v1"\n' + text)).agent
    assert agent.normalization == Normalization(skip=("1:3",), freeze_obs=100)
    given = "[agent]\nnormalize_obs = true\n[agent.normalization]\nmean = [0, 0, 1]\nstd = [1, 1, 4.5]\n"
    agent = config.build(tomllib.loads('env = "Pendulum-v1"\n' + given)).agent
    assert agent.normalization == Normalization(mean=(0.0, 0.0, 1.0), std=(1.0, 1.0, 4.5))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"skip": ("4",)}, "there are 4 entries; nearest valid: '3'"),
        ({"skip": ("3:2",)}, "there are 4 entries"),
        ({"skip": ("x",)}, "no entry 'x'"),
        ({"mean": (1.0,) * 4}, "give both"),
        ({"mean": (1.0,) * 3, "std": (1.0,) * 3}, "has 3 numbers; must have 4"),
        ({"mean": (1.0,) * 4, "std": (1.0,) * 4, "freeze_obs": 3}, "constant; leave it out"),
        ({"reward_std": 1.0}, "normalize_reward is false"),
        ({"freeze_reward": 1}, "normalize_reward is false"),
    ],
)
def test_contradictions_are_refused(options, text):
    with pytest.raises(ConfigError, match="normalization") as caught:
        normalization.initial(VECTOR, True, False, Normalization(**options))
    assert text in str(caught.value)


def test_names_of_a_dict_are_refused_with_the_nearest():
    for skip, text in (("goals", "nearest: 'goal'"), ("state.image.0", "'state.image'"), ("goal.7", "'goal.3'")):
        with pytest.raises(ConfigError, match=r"normalization\.skip") as caught:
            normalization.obs_stats_of(NAMED, Normalization(skip=(skip,)))
        assert text in str(caught.value)
    with pytest.raises(ConfigError, match="given statistics are of a vector"):
        normalization.obs_stats_of(NAMED, Normalization(mean=(1.0,), std=(1.0,)))
    with pytest.raises(ConfigError, match="normalize_obs is false"):
        normalization.initial(NAMED, False, True, dataclasses.replace(Normalization(), skip=("goal",)))
