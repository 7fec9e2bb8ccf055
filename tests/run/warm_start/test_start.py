"""Warm starts: leaves are copied exactly, the rest is a new run's; refusals write nothing; a resume is exact."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppax
from ppax import config
from ppax.agents.self_play import Pool, SelfPlayState
from ppax.config import Log
from ppax.core import imports
from ppax.core.types import LearnerState
from ppax.envs import grouped
from ppax.extensions import (
    PPG,
    RND,
    EntropyTarget,
    FeatureNorm,
    KLControl,
    NextObservation,
    OwnCritic,
    SelfPrediction,
)
from ppax.networks import network
from ppax.ppo import optimizers
from ppax.ppo.critics import PopArt, Regression
from ppax.ppo.losses import KLPenalty
from ppax.ppo.minibatches import Shuffle
from ppax.run import checkpoint
from ppax.run.restore import fresh_state, initial_state, state_shapes
from ppax.run.warm_start import prepare, settings_and_object

pytestmark = pytest.mark.usefixtures("quick_programs", "shared_programs")

NUM_ENVS, NUM_STEPS = 4, 8
ROLLOUT = NUM_ENVS * NUM_STEPS
LOG = Log(every=1, checkpoint_seconds=0.0, console=False)
SETTINGS = config.Run(num_steps=NUM_STEPS)


def ppo(env, hidden=(4,), **options):
    options = {"normalize_obs": True, "normalize_reward": True, "num_epochs": 1, "critic": PopArt()} | options
    return ppax.PPO(network(env, hidden=hidden), minibatch=Shuffle(1), **options)


ENV = ppax.make("CartPole-v1", NUM_ENVS)
AGENT = ppo(ENV)


def numbered(state):
    """Return the state with other numbers in every leaf of its learner: those of an imagined run."""
    leaves, structure = jax.tree.flatten(state.learner)

    def other(i, x):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.key(100 + i)
        return jnp.asarray((100 + i + np.arange(x.size).reshape(x.shape)).astype(x.dtype))

    leaves = [other(i, x) for i, x in enumerate(leaves)]
    return dataclasses.replace(state, learner=jax.tree.unflatten(structure, leaves), iteration=jnp.int32(9))


def warm_state(agent, env, source, run=SETTINGS, **changes):
    settings, given = settings_and_object(ppax.InitFrom(source, **changes))
    warm = prepare(agent, state_shapes(agent, env, run), settings, given)
    return initial_state(agent, env, run, warm)


def assert_same(one, other):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert x.dtype == y.dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), jax.tree_util.keystr(path)


def is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def assert_taken(warm, of, fresh, field):
    """Compare one field of three learners: all arrays are those `of` a learner except random keys, which are fresh."""
    leaves = (jax.tree.leaves(getattr(state.learner, field)) for state in (warm, of, fresh))
    for x, y, own in zip(*leaves, strict=True):
        assert_same(x, own if is_key(x) else y)


def fit(agent, env, run_dir, iterations=6, **changes):
    arguments = {"num_steps": NUM_STEPS, "log": LOG, "run_dir": run_dir, "seed": 3} | changes
    return ppax.fit(agent, env, iterations * NUM_STEPS * env.num_streams, **arguments)


def stop_at(iteration):
    return lambda state, row: row["iteration"] >= iteration


# ---------------------------------------------------------------- what is taken

DEFAULT = {"params", "obs_stats", "reward_stats", "critic"}


@pytest.mark.parametrize(
    "keep",
    [
        None,
        ("params",),
        ("params", "extensions", "opt_state"),
        ("obs_stats",),
        ("params", "obs_stats", "reward_stats", "critic", "extensions", "opt_state"),
    ],
)
def test_fields_that_are_kept_are_exact_copies_and_all_else_is_fresh(keep):
    kl, entropy = KLControl(rate_target=0.01), EntropyTarget(target=0.3)
    extensions = (kl, entropy, RND(), SelfPrediction(), PPG())
    agent = dataclasses.replace(AGENT, num_epochs=2, ent_coef=0.01, extensions=extensions)
    fresh = fresh_state(agent, ENV, SETTINGS)
    source = numbered(fresh)
    warm = warm_state(agent, ENV, source, **({} if keep is None else {"keep": keep}))
    for field in warm.learner._fields:
        taken = field in (DEFAULT if keep is None else keep)
        assert jax.tree.leaves(getattr(source.learner, field)), field
        assert_taken(warm, source if taken else fresh, fresh, field)
    # the counters, environments and keys are those of a new run
    assert int(warm.iteration) == 0
    assert_same(dataclasses.replace(warm, learner=()), dataclasses.replace(fresh, learner=()))


MODEL = {"extensions": (SelfPrediction(),)}
PARTS = {
    "adam": {},
    "sgd": {"optimizer": optimizers.Optax(optax.sgd)},
    "muon": {"optimizer": optimizers.Muon()},
    "actor_critic": {"optimizer": optimizers.ActorCritic(), "max_grad_norm": None},
    "kl controls": {
        "extensions": (KLControl(rate_target=0.01, coef_target=0.01),),
        "loss": KLPenalty(),
        "num_epochs": 2,
    },
    "entropy": {"extensions": (EntropyTarget(target=0.3),), "ent_coef": 0.01},
    "rnd": {"extensions": (RND(),)},
    "own critic": {"extensions": (OwnCritic(),)},
    "ppg": {"extensions": (PPG(),)},
    "ppg that keeps rollouts": {"extensions": (PPG(rollouts=2),)},
    "self-prediction": MODEL,
    "next observation": {"extensions": (NextObservation(),)},
    "feature norm": {"extensions": (FeatureNorm(),)},
    "no statistics": {"normalize_obs": False, "normalize_reward": False, "critic": Regression()},
}
WITH_WEIGHTS = {"opt_state": ("params", "extensions"), "extensions": ("params",)}


@pytest.mark.parametrize(("part", "players"), [*((name, None) for name in PARTS), ("own critic", 2)])
def test_every_field_of_every_part_is_taken_except_random_keys(part, players):
    """Numbers are those of the other run; random keys are the new run's, which has a seed of its own."""
    env = ENV if players is None else ppax.make("Pursuit-2", NUM_ENVS)
    agent = ppo(env, **PARTS[part])
    agent = agent if players is None else ppax.Independent(agent, players)
    fresh = fresh_state(agent, env, SETTINGS)
    source = numbered(fresh)
    for field in LearnerState._fields:
        keep = tuple(dict.fromkeys((*WITH_WEIGHTS.get(field, ()), field)))
        numbers = [x for name in keep for x in jax.tree.leaves(getattr(fresh.learner, name)) if not is_key(x)]
        if not numbers:
            with pytest.raises(
                ppax.ConfigError, match=rf'keep = \["{field}"\]: neither run has .*nearest: \["params"\]'
            ):
                warm_state(agent, env, source, keep=keep)
            continue
        warm = warm_state(agent, env, source, keep=keep)
        for name in LearnerState._fields:
            assert_taken(warm, source if name in keep else fresh, fresh, name)


@pytest.mark.parametrize(
    ("part", "keep", "needs"),
    [
        (
            MODEL,
            ("params", "opt_state"),
            "opt_state has moments of the weights: add extensions, or leave out opt_state",
        ),
        (
            MODEL,
            ("extensions", "opt_state"),
            "opt_state has moments of the weights: add params, or leave out opt_state",
        ),
        (
            {"extensions": (PPG(),)},
            ("obs_stats", "extensions"),
            "extensions may have moments of the weights: add params, or leave out extensions",
        ),
    ],
)
def test_moments_are_never_taken_without_their_weights(part, keep, needs):
    agent = ppo(ENV, **part)
    with pytest.raises(ppax.ConfigError, match=f"init_from.keep: {needs}"):
        warm_state(agent, ENV, numbered(fresh_state(agent, ENV, SETTINGS)), keep=keep, partial=True)


def test_moments_of_a_model_that_differs_are_left():
    agent, other = (ppo(ENV, extensions=(SelfPrediction(hidden=(size,)),)) for size in (8, 9))
    source = numbered(fresh_state(agent, ENV, SETTINGS))
    keep = ("params", "extensions", "opt_state")
    with pytest.warns(UserWarning, match=r"opt_state.* beside one that differs"):
        warm = warm_state(other, ENV, source, keep=keep, partial=True)
    assert_same(warm.learner.opt_state, fresh_state(other, ENV, SETTINGS).learner.opt_state)
    assert_same(warm.learner.params, source.learner.params)


def test_adams_count_goes_on_or_begins_anew():
    source = fresh_state(AGENT, ENV, SETTINGS)
    counted = jax.tree.map(lambda x: x + 41 if x.dtype == jnp.int32 else x, source.learner.opt_state)
    source = dataclasses.replace(source, learner=source.learner._replace(opt_state=counted))

    def counts(state):
        return [int(x) for x in jax.tree.leaves(state.learner.opt_state) if x.dtype == jnp.int32]

    assert counts(warm_state(AGENT, ENV, source)) == [0]
    assert counts(warm_state(AGENT, ENV, source, keep=("params", "opt_state"))) == [41]


def test_other_environments_hyperparameters_and_sizes():
    """Another number of environments, other parameters of theirs, other numbers of the agent: the same learner."""
    source = numbered(fresh_state(AGENT, ENV, SETTINGS))
    env = ppax.make("CartPole-v1", 2 * NUM_ENVS, env_params={"gravity": 19.6})
    agent = dataclasses.replace(AGENT, learning_rate=1e-5, num_epochs=2, minibatch=Shuffle(2))
    warm = warm_state(agent, env, source, config.Run(num_steps=16, seed=5))
    for field in DEFAULT:
        assert_same(getattr(warm.learner, field), getattr(source.learner, field))
    assert warm.actor.first.shape == (2 * NUM_ENVS,)


def test_independent_players_are_taken_one_for_one():
    env = ppax.make("Pursuit-2", NUM_ENVS)
    agent = ppax.Independent(ppo(env), 2)
    source = numbered(fresh_state(agent, env, SETTINGS))
    assert_same(warm_state(agent, env, source).learner.params, source.learner.params)
    with pytest.raises(ppax.ConfigError, match=r"params\.policy\.bias +float32\[1\] +float32\[2, 1\] +differs"):
        warm_state(ppo(env), env, source)


PLAYERS = {"prey": [0], "hunters": [1, 2]}


def pursuit(players=PLAYERS, num_envs=8):
    env = grouped(ppax.make("Pursuit-3", num_envs), players)
    return ppax.Groups({name: ppo(group) for name, group in env.groups.items()}, env.sizes), env


def test_groups_are_taken_by_name():
    agent, env = pursuit()
    source = numbered(fresh_state(agent, env, SETTINGS))
    for name, own in warm_state(agent, env, source).learner.items():
        assert_same(own.params, source.learner[name].params)
        assert_same(own.obs_stats, source.learner[name].obs_stats)
    other, other_env = pursuit({"prey": [0], "wolves": [1, 2]})
    with pytest.raises(ppax.ConfigError, match=r"wolves\.params\.policy\.bias +float32\[1\] +- +only here"):
        warm_state(other, other_env, source)
    with pytest.warns(UserWarning, match=r"hunters\.params\.actor\.0\.bias +- +float32\[4\] +only there"):
        warm = warm_state(other, other_env, source, partial=True)
    assert_same(warm.learner["prey"].params, source.learner["prey"].params)
    assert_same(warm.learner["wolves"].params, fresh_state(other, other_env, SETTINGS).learner["wolves"].params)


def test_self_play_starts_with_a_pool_of_the_learners_that_it_takes():
    groups, env = pursuit()
    agent = ppax.SelfPlay(groups, Pool(every=2, size=3, opponents=1), 8)
    source = numbered(fresh_state(agent, env, SETTINGS))
    assert isinstance(source.learner, SelfPlayState)
    warm, fresh = warm_state(agent, env, source), fresh_state(agent, env, SETTINGS)
    for name in PLAYERS:
        params = source.learner.current[name].params
        assert_same(warm.learner.current[name].params, params)
        assert_same(warm.learner.pool[name].params, jax.tree.map(lambda x: jnp.stack([x] * 3), params))
    for field in ("num_snapshots", "opponents", "elo", "past_elo", "returns", "counts", "iteration"):
        assert_same(getattr(warm.learner, field), getattr(fresh.learner, field))
    # and from groups without self-play, and back
    assert_same(warm_state(groups, env, source).learner["prey"].params, source.learner.current["prey"].params)
    plain = numbered(fresh_state(groups, env, SETTINGS))
    assert_same(warm_state(agent, env, plain).learner.current["prey"].params, plain.learner["prey"].params)


# ---------------------------------------------------------------- refusals


def test_a_network_that_differs_is_refused_with_a_table_and_nothing_is_written(tmp_path):
    source = numbered(fresh_state(AGENT, ENV, SETTINGS))
    other = ppo(ENV, hidden=(5,))
    with pytest.raises(ppax.ConfigError) as refused:
        fit(other, ENV, tmp_path / "run", init_from=source)
    text = str(refused.value)
    assert "init_from TrainState: 6 of" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["params.policy.kernel", "float32[5,", "2]", "float32[4,", "2]", "differs"] in rows
    assert ["params.policy.bias", "float32[2]", "float32[2]", "same"] in rows
    assert "partial" in text
    assert not (tmp_path / "run").exists()


def test_statistics_that_this_run_lacks_are_refused_unless_they_are_left_out():
    source = numbered(fresh_state(AGENT, ENV, SETTINGS))
    plain = ppo(ENV, normalize_obs=False)
    with pytest.raises(ppax.ConfigError, match=r"obs_stats\.count +- +uint32\[2\] +only there"):
        warm_state(plain, ENV, source)
    keep = ("params", "reward_stats", "critic")
    assert_same(warm_state(plain, ENV, source, keep=keep).learner.params, source.learner.params)
    without = numbered(fresh_state(plain, ENV, SETTINGS))
    with pytest.raises(ppax.ConfigError, match=r"obs_stats\.count +uint32\[2\] +- +only here"):
        warm_state(AGENT, ENV, without)


def test_partial_takes_what_fits_and_records_both():
    source = numbered(fresh_state(AGENT, ENV, SETTINGS))
    other = ppo(ENV, hidden=(5,))
    settings, given = settings_and_object(ppax.InitFrom(source, partial=True))
    with pytest.warns(UserWarning, match=r"init_from TrainState \(iteration 9\): \d+ arrays taken, 6 not:"):
        prepared = prepare(other, state_shapes(other, ENV, SETTINGS), settings, given)
    warm, fresh = initial_state(other, ENV, SETTINGS, prepared), fresh_state(other, ENV, SETTINGS)
    assert_same(warm.learner.params["policy"]["bias"], source.learner.params["policy"]["bias"])
    assert_same(warm.learner.params["policy"]["kernel"], fresh.learner.params["policy"]["kernel"])
    assert_same(warm.learner.obs_stats, source.learner.obs_stats)
    record = prepared.record()["init_from"]
    assert "params.policy.bias" in record["taken"]
    assert sorted(x for x in record["fresh"] if x.endswith("kernel")) == [
        f"params.{layer}.kernel" for layer in ("actor.0", "critic.0", "policy", "value")
    ]
    assert (record["iteration"], record["run"], record["only_there"]) == (9, "TrainState", [])


def test_partial_that_takes_nothing_is_refused():
    source = numbered(fresh_state(AGENT, ENV, SETTINGS))
    env = ppax.make("Pendulum-v1", NUM_ENVS)
    with pytest.raises(ppax.ConfigError, match="do not fit"):
        warm_state(ppo(env, hidden=(7, 7), critic=ppax.critics.TwoHot()), env, source, keep=("params",), partial=True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"run": None, "best": True}, "init_from: without a run to start from, .*set run"),
        ({"keep": ()}, r'init_from\.keep = \[\]: takes nothing; nearest: \["params"\]'),
        ({"keep": ("obs_stats", "opt_state")}, "opt_state has moments of the weights: add params"),
        ({"keep": ("parms",)}, r"keep = 'parms': must be one of params, opt_state.*nearest: params"),
        ({"keep": "params"}, "keep = 'params': must be a list of str"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, text):
    source = numbered(fresh_state(AGENT, ENV, SETTINGS))
    with pytest.raises(ppax.ConfigError, match=text):
        fit(AGENT, ENV, None, init_from=ppax.InitFrom(**{"run": source} | changes))


def test_scores_are_of_random_weights(tmp_path):
    options = {"init_from": {"run": str(tmp_path)}}
    with (
        pytest.raises(ppax.ConfigError, match=r"init_from\.run: scores are of runs from random weights"),
        imports.trusting([str(tmp_path)]),
    ):
        ppax.score("CartPole-v1", seeds=1, options=options)


# ---------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "a"
    fit(AGENT, ENV, path, 3, seed=0)
    return path


@pytest.fixture
def copied(source, tmp_path):
    return Path(shutil.copytree(source, tmp_path / "a"))


def checkpoints(path):
    return checkpoint.list_checkpoints(path / "checkpoints")


def test_a_run_starts_with_the_newest_checkpoint_of_another_and_records_it(source, tmp_path):
    started = []
    fit(AGENT, ENV, tmp_path / "b", 1, init_from=str(source), callbacks=[lambda state, row: started.append(row)])
    (kept, _) = checkpoints(tmp_path / "b")
    assert kept.name == "0000000000"
    shapes = state_shapes(AGENT, ENV, SETTINGS)
    first = checkpoint.load(kept, shapes)
    last = checkpoint.load(checkpoints(source)[-1], shapes)
    for field in DEFAULT:
        assert_same(getattr(first.learner, field), getattr(last.learner, field))
    assert config.read(tmp_path / "b" / "run.toml")["init_from"]["run"] == str(source)
    about = json.loads((tmp_path / "b" / "about.json").read_text())["starts"][0]["init_from"]
    assert about["id"] == json.loads((source / "about.json").read_text())["id"]
    assert (about["iteration"], about["best"], about["fresh"]) == (3, False, [])
    # values and actions of the first rollout come from that policy
    assert started[0]["approx_kl"] is not None
    manifest = checkpoint.read_manifest(checkpoints(tmp_path / "b")[-1])
    assert manifest["origin"]["config"]["init_from.run"] == str(source)


def test_a_resumed_warm_start_is_exact_without_the_other_run(copied, tmp_path):
    whole = fit(AGENT, ENV, tmp_path / "whole", init_from=copied)
    fit(AGENT, ENV, tmp_path / "half", init_from=copied, callbacks=[stop_at(3)])
    shutil.copytree(tmp_path / "half", tmp_path / "begun")
    for later in checkpoints(tmp_path / "begun"):  # as if it was killed before its first iteration
        shutil.rmtree(later)
    fit(AGENT, ENV, tmp_path / "zero", 1, init_from=copied)
    shutil.rmtree(copied)
    assert_same(whole.state, ppax.resume(tmp_path / "half", console=False).state)
    with pytest.raises(imports.Untrusted, match=r"init_from\.run = .*lies outside of it"):
        ppax.resume(tmp_path / "begun", console=False)
    with (
        pytest.raises(ppax.ConfigError, match=r"init_from\.run = .*is not a run directory"),
        imports.trusting([str(copied)]),
    ):
        ppax.resume(tmp_path / "begun", console=False)
    # the state before the first iteration is saved: of it, too, the other run is not needed
    shutil.rmtree(checkpoints(tmp_path / "zero")[-1])
    again = ppax.resume(tmp_path / "zero", total_steps=6 * ROLLOUT, console=False)
    assert_same(whole.state, again.state)


def test_a_run_without_a_checkpoint_starts_from_the_other_run_again(copied, tmp_path):
    whole = fit(AGENT, ENV, tmp_path / "run", init_from=copied)
    for path in checkpoints(tmp_path / "run"):
        shutil.rmtree(path)
    with imports.trusting([str(copied)]):
        assert_same(whole.state, ppax.resume(tmp_path / "run", console=False).state)


def test_an_object_in_memory_is_named_in_the_run_file_and_not_needed_by_a_resume(tmp_path):
    source = numbered(fresh_state(AGENT, ENV, SETTINGS))
    # finite, but far from any policy: statistics of 100 samples and weights near 100
    source = dataclasses.replace(source, learner=source.learner._replace(params=fresh_params()))
    whole = fit(AGENT, ENV, tmp_path / "whole", init_from=source)
    fit(AGENT, ENV, tmp_path / "half", init_from=source, callbacks=[stop_at(3)])
    assert config.read(tmp_path / "whole" / "run.toml")["objects"] == [
        "init_from (TrainState), which resume does not need"
    ]
    assert_same(whole.state, ppax.resume(tmp_path / "half", console=False).state)
    with pytest.raises(ppax.ConfigError, match=r"objects = init_from \(TrainState\)"):
        config.build(config.read(tmp_path / "whole" / "run.toml"))
    for path in checkpoints(tmp_path / "half"):
        shutil.rmtree(path)
    with pytest.raises(ppax.CheckpointError, match="has no checkpoint, and it started from an object in memory"):
        ppax.resume(tmp_path / "half", console=False)


def fresh_params():
    return fresh_state(AGENT, ENV, config.Run(num_steps=NUM_STEPS, seed=8)).learner.params


GIVEN = {"mean": (1.0, 2.0, 3.0, 4.0), "std": (1.0, 1.0, 2.0, 2.0)}


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (GIVEN, {}, "statistics are not those of normalization.mean and std"),
        ({}, GIVEN, "statistics were given"),
        (GIVEN, GIVEN, ""),
        ({"reward_std": 5.0}, {}, "statistics are not those of normalization.reward_std"),
        ({}, {"reward_std": 5.0}, "statistics were given"),
        ({"reward_std": 5.0}, {"reward_std": 5.0}, ""),
        ({"skip": ("0",)}, {"skip": ("1", "2")}, "normalization.skip leaves out other entries"),
        ({"skip": ("0",)}, {"skip": ("0",)}, ""),
    ],
)
def test_statistics_that_contradict_the_new_runs_normalisation_are_refused(here, there, said):
    mine, other = (ppo(ENV, normalization=ppax.Normalization(**options)) for options in (here, there))
    begin = jax.jit(ppax.start, static_argnums=2)
    source = jax.jit(ppax.train)(other, ENV, begin(other, ENV, NUM_STEPS, jax.random.key(0)), 1).state
    state = begin(mine, ENV, NUM_STEPS, jax.random.key(1))

    def start(**settings):
        return prepare(mine, state, ppax.InitFrom(**settings), source).apply(mine, ENV, state)

    if said:
        with pytest.raises(ppax.ConfigError, match=f"init_from TrainState: its {said}.* out of init_from.keep"):
            start()
    else:
        start()
    start(keep=("params",))
