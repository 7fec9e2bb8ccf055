"""Motion prior: reward and loss of the discriminator in float64, entries, transitions, run files, resume, learning."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.core.types import ConfigError
from ppax.extensions.imitation import MotionPrior, motion_prior
from ppax.extensions.imitation.demonstrations import read_transitions
from ppax.extensions.imitation.motions import chosen_entries
from ppax.networks import mlp, network
from ppax.networks.memories import GRU
from ppax.ppo.forward import example_of
from ppax.training.collection import collect
from support.worlds import QUICK

QUIET = ppax.Log(console=False)
ENV = ppax.make("CartPole-v1", 4)
SMALL = {"hidden": (5,), "num_minibatches": 2}
MIXED = spaces.Dict(joints=spaces.Box(-1.0, 1.0, (3,)), base=spaces.Dict(pose=spaces.Box(-1.0, 1.0, (2, 2))))


def demonstrations(steps=30, width=4, seed=0):
    """Episodes of ten steps of random observations."""
    rng = np.random.default_rng(seed)
    ends = np.arange(1, steps + 1) % 10 == 0
    obs = rng.normal(size=(steps, width)) * np.linspace(0.5, 2.0, width)
    return {"observations": obs, "terminations": ends, "truncations": np.zeros(steps, bool)}


def agent_of(env=ENV, demos=None, **options):
    prior = motion_prior(env, demonstrations() if demos is None else demos, **{**SMALL, **options})
    return ppax.PPO(mlp(env, hidden=(5,)), extensions=(prior,), num_epochs=1)


def rollout_of(agent, env=ENV, steps=24):
    state = ppax.start(agent, env, steps, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    return state.learner, gather(agent, env, state.learner, state.actor, steps, jax.random.key(1)).rollout


def before(agent, learner, rollout):
    prior = agent.extensions[0]
    hook = jax.jit(lambda state, rollout: prior.before(agent, state, (), rollout, rollout.steps.reward))
    return hook(learner.extensions["motion_prior"].state, rollout)


def outputs(params, pairs):
    """D for pairs [N, 2 k] in float64: one hidden layer with relu, then a linear one."""
    hidden = np.maximum(pairs @ np.float64(params["0"]["kernel"]) + np.float64(params["0"]["bias"]), 0.0)
    return (hidden @ np.float64(params["kernel"]) + np.float64(params["bias"]))[..., 0]


def standardised(demos, x):
    """Entries by mean and standard deviation of the demonstrated observations that have a successor."""
    obs = np.float64(demos["observations"])
    shown = obs[:-1][~demos["terminations"][:-1]]
    return np.clip((x - shown.mean(0)) / shown.std(0), -5.0, 5.0)


def test_the_reward_is_that_of_the_discriminator_for_each_step_and_its_successor():
    agent = agent_of(task_coef=0.3, style_coef=2.0)
    learner, rollout = rollout_of(agent)
    out, steps = before(agent, learner, rollout), rollout.steps
    obs = np.concatenate([np.float64(steps.obs), np.float64(rollout.last_obs)[None]])
    x = standardised(demonstrations(), obs)
    d = outputs(learner.extensions["motion_prior"].state.discriminator, np.concatenate([x[:-1], x[1:]], axis=-1))
    style = np.maximum(0.0, 1.0 - 0.25 * (d - 1.0) ** 2)
    valid, reward = np.asarray(steps.valid), np.float64(steps.reward)
    assert 0 < (~valid).sum() < valid.size  # episodes end, also steps that only reset
    np.testing.assert_allclose(np.asarray(out.reward)[valid], (0.3 * reward + 2.0 * style)[valid], rtol=2e-5)
    np.testing.assert_array_equal(np.asarray(out.reward)[~valid], reward[~valid])
    np.testing.assert_allclose(out.metrics["style_reward"], style[valid].mean(), rtol=1e-5)
    np.testing.assert_allclose(out.metrics["discriminator_output"], d[valid].mean(), rtol=1e-4)


def test_the_loss_is_least_squares_with_a_penalty_on_the_gradient_at_demonstrations():
    """The gradient of D is taken by central differences in float64."""
    agent = agent_of(gradient_penalty=3.0)
    prior, learner = agent.extensions[0], agent.init(ENV.observation_space, jax.random.key(0))
    params = jax.tree.map(
        lambda x: x + 0.2 * jnp.cos(jnp.arange(x.size) + 1.0).reshape(x.shape),
        learner.extensions["motion_prior"].state.discriminator,
    )
    rng = np.random.default_rng(1)
    ours, shown = rng.normal(size=(2, 7, 8)).astype(np.float32)
    index = np.array([6, 0, 3, 2, 1, 5, 4])
    losses = prior._row_losses(jnp.asarray(shown), params, jnp.asarray(ours), jnp.asarray(index))
    shown, step = np.float64(shown[index]), 1e-5
    sides = [
        outputs(params, shown + step * np.eye(8)[i]) - outputs(params, shown - step * np.eye(8)[i]) for i in range(8)
    ]
    gradient = np.stack(sides, axis=-1) / (2.0 * step)
    expected = (outputs(params, shown) - 1.0) ** 2 + (outputs(params, np.float64(ours)) + 1.0) ** 2
    np.testing.assert_allclose(losses, expected + 3.0 * (gradient**2).sum(-1), rtol=1e-4)


def test_the_discriminator_tells_demonstrations_from_the_policy():
    agent = agent_of(num_epochs=40, learning_rate=1e-2, gradient_penalty=0.0, hidden=(16,))
    learner, rollout = rollout_of(agent)
    out = before(agent, learner, rollout)
    x = standardised(demonstrations(), np.concatenate([np.float64(rollout.steps.obs), rollout.last_obs[None]]))
    pairs = np.concatenate([x[:-1], x[1:]], axis=-1)[np.asarray(rollout.steps.valid)]
    demos = demonstrations()
    shown = standardised(demos, np.float64(demos["observations"]))
    keep = ~demos["terminations"][:-1]
    shown = np.concatenate([shown[:-1][keep], shown[1:][keep]], axis=-1)
    trained = out.state.discriminator
    assert outputs(trained, shown).mean() > 0.5
    assert outputs(trained, pairs).mean() < -0.5


@pytest.mark.parametrize("last", [False, True])
def test_transitions_stay_inside_their_episode(last):
    """Two episodes of three and two steps, the numbers of which say where they are from."""
    rows = [[0.0], [1.0], [2.0], [10.0], [11.0]]
    if last:
        rows[3:3], rows[6:6] = [[3.0]], [[12.0]]
    flags = {"terminations": [False, False, True, False, False], "truncations": [False, False, False, False, True]}
    chosen = chosen_entries(np.zeros(1), ())
    found = read_transitions({"observations": np.array(rows), **{k: np.array(x) for k, x in flags.items()}}, chosen)
    starts = [0.0, 1.0, 2.0, 10.0, 11.0] if last else [0.0, 1.0, 10.0]
    np.testing.assert_array_equal(found.obs[:, 0], starts)
    np.testing.assert_array_equal(found.following[:, 0], np.array(starts) + 1.0)


def test_entries_of_a_dict_are_read_in_demonstrations_and_in_observations_alike():
    entries = ("joints.1:3", "base")
    chosen = chosen_entries(example_of(MIXED), entries)
    assert [(one.name, one.places) for one in chosen] == [("base/pose", (0, 1, 2, 3)), ("joints", (1, 2))]
    rng = np.random.default_rng(0)
    joints, pose = rng.normal(size=(6, 3)), rng.normal(size=(6, 2, 2))
    ends = {"terminations": np.zeros(6, bool), "truncations": np.arange(6) == 5}
    whole = {"observations/joints": joints, "observations/base/pose": pose, **ends}
    read = read_transitions(whole, chosen)
    np.testing.assert_allclose(read.obs, np.concatenate([pose.reshape(6, 4), joints[:, 1:]], axis=1)[:-1], rtol=1e-6)
    alone = {"observations": {"joints": joints[:, 1:], "base": {"pose": pose}}, **ends}
    assert read_transitions(alone, chosen) == read  # equal checksums
    prior = MotionPrior(entries=entries)
    obs = {"joints": joints[:, None], "base": {"pose": pose[:, None]}}
    found = prior._read(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), obs))[:, 0]
    np.testing.assert_allclose(found[:-1], read.obs, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "entries", "said"),
    [
        ({}, ("5",), "motion_prior.entries = '5': there are 4 entries; nearest valid: '3'"),
        ({}, ("joints",), "motion_prior.entries: no entry 'joints' in the observations"),
        ({"observations": np.zeros((30, 3))}, (), r"observations has shape \[30, 3\]; must be \[n, 4\]$"),
        ({"observations": np.zeros((30, 3))}, ("1:3",), r"must be \[n, 4\] or, of the chosen entries alone, \[n, 2\]"),
        ({"observations": np.full((30, 4), np.nan)}, (), "observations has a number that is not finite"),
        ({"observations": np.zeros((31, 4))}, (), "31 observations for 30 actions of 3 episodes"),
        ({"truncations": None}, (), "has no truncations; must have observations, terminations, truncations"),
        ({"truncations": np.ones(30, bool)}, (), "no episode has two observations"),
        ({"observations": {"a": np.zeros((30, 4))}}, (), "observations is an array of object"),
    ],
)
def test_demonstrations_and_entries_that_do_not_fit_are_refused(change, entries, said):
    demos = {name: x for name, x in (demonstrations() | change).items() if x is not None}
    with pytest.raises(ConfigError, match=said):
        motion_prior(ENV, demos, entries=entries)


def test_without_demonstrations_the_part_says_what_to_give():
    with pytest.raises(ConfigError, match=r"must be demonstrations = .*motion_prior\(env, demonstrations\)"):
        motion_prior(ENV)
    with pytest.raises(ConfigError, match="a motion prior needs demonstrations: demonstrations = "):
        ppax.PPO(mlp(ENV), extensions=(MotionPrior(),)).init(ENV.observation_space, jax.random.key(0))


def numbers(agent, env=ENV):
    run = ppax.fit(agent, env, 4 * 16 * 3, num_steps=16, log=QUIET)
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(run.state.learner.params)])


@pytest.mark.parametrize(
    "change",
    [
        {"task_coef": 0.1},
        {"style_coef": 5.0},
        {"gradient_penalty": 30.0},
        {"learning_rate": 0.1},
        {"num_epochs": 3},
        {"num_minibatches": 4},
        {"hidden": (6,)},
        {"clip": 0.1},
        {"entries": ("0:2",)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_option_changes_the_policy(change):
    assert np.abs(numbers(agent_of(**change)) - plain()).max() > 0.0


def plain(found=[]):  # noqa: B006
    found += [] if found else [numbers(agent_of())]
    return found[0]


def test_memories_and_the_host_learn_from_the_style_too():
    prior = motion_prior(ENV, demonstrations(), **SMALL)
    recurrent = ppax.PPO(network(ENV, memory=GRU(3)), extensions=(prior,), num_epochs=1)
    host = ppax.make("gymnasium/CartPole-v1", 4)
    for agent, env in ((recurrent, ENV), (agent_of(host), host)):
        other = dataclasses.replace(agent, extensions=(dataclasses.replace(agent.extensions[0], style_coef=0.0),))
        assert np.abs(numbers(agent, env) - numbers(other, env)).max() > 0.0


def test_a_run_file_names_its_demonstrations_and_a_resume_goes_on_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ppax.trust(f"{tmp_path}/motion.npz")
    np.savez("motion.npz", **demonstrations(width=2))
    table = {"demonstrations": "motion.npz", "entries": ["1:3"], "hidden": [5], "num_minibatches": 2}
    plan = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 16}
    agent, env, _ = config.build(plan | {"agent": {"network": {"hidden": [4]}, "extensions": {"motion_prior": table}}})
    described = config.describe(agent)["extensions"]["motion_prior"]
    assert described["demonstrations"] == str(tmp_path / "motion.npz")
    assert len(described["checksum"]) == 64
    whole = ppax.fit(agent, env, 192, num_steps=16, seed=3, run_dir="whole", log=QUIET)
    ppax.fit(agent, env, 64, num_steps=16, seed=3, run_dir="parts", log=QUIET)
    resumed = ppax.resume("parts", total_steps=192)
    learners = [run.state.learner for run in (whole, resumed)]
    keys = [jax.random.key_data(one.extensions["motion_prior"].state.key) for one in learners]
    np.testing.assert_array_equal(*keys)
    for x, y in zip(*map(jax.tree.leaves, learners), strict=True):
        if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(x, y)
    np.savez("motion.npz", **demonstrations(width=2, seed=1))
    jax.clear_caches()  # as in another process
    with pytest.raises(ConfigError, match="others than at the run's start"):
        ppax.resume("parts", total_steps=256)
    assert ppax.load("parts").act(np.zeros(4, np.float32)) in (0, 1)  # acting needs none
