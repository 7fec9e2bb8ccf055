"""Warm starts in changed spaces: the policy acts as before on old numbers, whatever the new ones are."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from ppax.types import EnvReset, EnvStep, part

import ppax
from ppax import config
from ppax.networks import memories, network
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.normalization import Normalization, init_obs_stats, update_obs_stats
from ppax.run.changed_spaces import read_pieces
from ppax.run.restore import fresh_state, initial_state, state_shapes
from ppax.run.warm_start import prepare, settings_and_object

pytestmark = pytest.mark.usefixtures("quick_programs", "shared_programs")

SETTINGS = config.Run(num_steps=4)
LOG = ppax.Log(console=False, every=1, checkpoint_seconds=0.0)
TWO = spaces.Discrete(2)


def box(*shape):
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def zeros(space):
    if isinstance(space, spaces.Dict):
        return {name: zeros(inner) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(zeros, space.spaces))
    return jnp.asarray(np.zeros(space.shape, space.dtype))


def world(obs, actions=TWO, players=None):
    """Return two copies of an environment with these spaces, in which nothing happens."""

    @part
    class World:
        observation_space, action_space, num_agents = obs, actions, players

        def observed(self):
            first = zeros(obs)
            return first if players is None else jax.tree.map(lambda x: jnp.stack([x] * players), first)

        def reset(self, key):
            return EnvReset(jnp.int32(0), self.observed())

        def step(self, state, action, key):
            reward = jnp.zeros(() if players is None else players, jnp.float32)
            return EnvStep(state, self.observed(), reward, jnp.zeros((), bool), state > 4)

    return ppax.envs.VectorEnv(World(), 2)


def ppo(env, **options):
    mine = {name: options.pop(name) for name in ("normalize_obs", "normalization", "extensions") if name in options}
    made = network(env, **({"hidden": (6,), "policy_gain": 1.0} | options))
    return ppax.PPO(made, minibatch=Shuffle(1), num_epochs=1, **({"normalize_obs": True} | mine))


def observations(space, seed=0, rows=5):
    space.seed(seed)
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(one) for one in x]), *[space.sample() for _ in range(rows)])


def trained(agent, env):
    """Return a state with statistics of some observations, biases and norms away from 0 and 1."""
    state = fresh_state(agent, env, SETTINGS)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), state.learner.params)
    stats = state.learner.obs_stats
    if stats is not None and agent.sharing == "shared":
        seen = observations(env.observation_space, 7, 50)
        stats = update_obs_stats(init_obs_stats(env.observation_space), seen, jnp.ones(50, bool))
    return dataclasses.replace(state, learner=state.learner._replace(params=params, obs_stats=stats))


def run_of(agent, env, state):
    """Return a run in memory, which knows its spaces, with the learner of `state`."""
    return ppax.TrainedRun(agent=agent, env=env, state=state, history=[], run_dir=None)


def warm(agent, env, source, **options):
    settings, given = settings_and_object(ppax.InitFrom(source, **options))
    prepared = prepare(agent, state_shapes(agent, env, SETTINGS), settings, given)
    return prepared, initial_state(agent, env, SETTINGS, prepared)


def policy(agent, state, obs):
    rows = len(jax.tree.leaves(obs)[0])
    # two steps, so that a memory matters
    carry = agent.initial_carry(rows)
    first = agent.policy(state.learner, carry, obs, jnp.ones(rows, bool), None)
    return agent.policy(state.learner, first.carry, obs, jnp.zeros(rows, bool), None)


def assert_same_policy(before, after):
    for x, y in ((before.distribution, after.distribution), (before.value_outputs, after.value_outputs)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), x, y)


NETWORKS = {
    "separate": {},
    "shared": {"shared": True},
    "gru": {"memory": memories.GRU(5)},
    "norm and head": {"layer_norm": True, "head_hidden": (4,), "normalize_obs": False},
    "simba": {"layers": "simba"},
    "deep residual": {"hidden": (6, 6), "residual": True},
    "critic of its own": {"critic": ppax.networks.Tower(hidden=(7,))},
}
# items, old size, and for each new number the old one
BOXES = {
    "three added": (("0:4", "new:3"), 4, (0, 1, 2, 3, None, None, None)),
    "reordered": (("3", "0:3"), 4, (3, 0, 1, 2)),
    "removed, added and reordered": (("2", "new", "0"), 4, (2, None, 0)),
}


@pytest.mark.parametrize(
    ("net", "change"), [*((name, "three added") for name in NETWORKS), *(("gru", name) for name in list(BOXES)[1:])]
)
def test_a_policy_acts_as_before_on_the_old_numbers(net, change):
    """Dropped numbers are at their mean, and so have no influence in the old policy either."""
    items, old, origins = BOXES[change]
    before, after = world(box(old)), world(box(len(origins)))
    one, other = (ppo(env, **NETWORKS[net]) for env in (before, after))
    source = trained(one, before)
    seen = np.array(observations(box(old), 3))
    stats = source.learner.obs_stats
    for i in set(range(old)) - set(origins):
        seen[:, i] = stats.mean.high[i]
    now = np.random.default_rng(1).normal(0.0, 5.0, (5, len(origins))).astype(np.float32)
    for i, origin in enumerate(origins):
        now[:, i] = now[:, i] if origin is None else seen[:, origin]
    prepared, state = warm(other, after, source, observations=items)
    assert_same_policy(policy(one, source, jnp.asarray(seen)), policy(other, state, jnp.asarray(now)))
    new = origins.count(None)
    dropped = len(set(range(old)) - set(origins))
    said = f"observations: {len(origins) - new} of {len(origins)} numbers taken, {new} new, {dropped} dropped"
    assert said in str(prepared)
    assert prepared.record()["init_from"]["changes"] == said


def test_statistics_follow_their_numbers_and_new_ones_are_standard():
    before, after = world(box(3)), world(box(2, 2))
    source = trained(ppo(before), before)
    _, state = warm(ppo(after), after, source, observations=("2", "new", "0:2"))
    old, new = source.learner.obs_stats, state.learner.obs_stats
    np.testing.assert_array_equal(new.count, old.count)
    for field, fill in (("mean", 0.0), ("var", 1.0)):
        for x, y, start in zip(getattr(old, field), getattr(new, field), (fill, 0.0), strict=True):
            np.testing.assert_array_equal(y, np.array([[x[2], start], [x[0], x[1]]], np.float32))


def test_new_weights_are_zero_and_the_first_update_moves_them():
    env = ppax.make("CartPole-v1", 4)
    masked = ppax.make("CartPole-v1-masked", 4)
    source = ppax.fit(ppo(masked), masked, 64, num_steps=8, log=LOG)
    start = ppax.InitFrom(source, observations=("0", "new", "1", "new"))
    states = []
    keep = lambda state, row: states.append(jax.tree.map(np.array, state.learner.params))  # noqa: E731
    _, first = warm(ppo(env), env, source, observations=start.observations)
    for name in ("actor", "critic"):
        kernel = np.asarray(first.learner.params[name]["0"]["kernel"])
        assert not kernel[[1, 3]].any()
        np.testing.assert_array_equal(kernel[[0, 2]], source.state.learner.params[name]["0"]["kernel"])
    ppax.fit(ppo(env), env, 32, num_steps=8, log=LOG, init_from=start, callbacks=[keep])
    for name in ("actor", "critic"):
        assert (np.abs(states[0][name]["0"]["kernel"][[1, 3]]).max(1) > 1e-5).all()


IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
DICT_BEFORE = spaces.Dict({"speed": box(2), "arm": box(3), "kind": spaces.Discrete(3), "camera": IMAGE, "old": box(1)})
DICT_AFTER = spaces.Dict(
    {"velocity": box(2), "arm": box(4), "kind": spaces.Discrete(3), "camera": IMAGE, "goal": box(2), "side": IMAGE}
)
DICT_ITEMS = ("velocity=speed", "arm=0:2", "arm=new", "arm=2", "goal=new", "side=new")


@pytest.mark.parametrize("options", [{}, {"actor_obs": ("arm", "camera")}])
def test_entries_of_a_dict_follow_their_names(options):
    before, after = world(DICT_BEFORE), world(DICT_AFTER)
    one, other = (ppo(env, **options) for env in (before, after))
    source = trained(one, before)
    stats = source.learner.obs_stats
    seen = observations(DICT_BEFORE, 3) | {"old": jnp.tile(stats["old"].mean.high, (5, 1))}
    now = observations(DICT_AFTER, 4) | {"velocity": seen["speed"], "kind": seen["kind"], "camera": seen["camera"]}
    now["arm"] = jnp.concatenate([seen["arm"][:, :2], now["arm"][:, :1], seen["arm"][:, 2:]], axis=1)
    _, state = warm(other, after, run_of(one, before, source), observations=DICT_ITEMS)
    assert_same_policy(policy(one, source, seen), policy(other, state, now))
    new = state.learner.obs_stats
    for name, origin in (("velocity", "speed"), ("camera", "camera")):
        jax.tree.map(np.testing.assert_array_equal, new[name], stats[origin])
    for name in ("goal", "side"):
        jax.tree.map(np.testing.assert_array_equal, new[name], init_obs_stats(DICT_AFTER)[name])
    np.testing.assert_array_equal(new["arm"].mean.high[2], 0.0)


def test_one_array_becomes_an_entry_of_a_dict():
    before, after = world(box(3)), world(spaces.Dict({"state": box(3), "goal": box(2)}))
    one, other = ppo(before), ppo(after)
    source = trained(one, before)
    seen = observations(box(3), 3)
    _, state = warm(other, after, run_of(one, before, source), observations=("state=obs", "goal=new"))
    now = {"state": seen, "goal": jnp.full((5, 2), 9.0)}
    assert_same_policy(policy(one, source, seen), policy(other, state, now))
    jax.tree.map(np.testing.assert_array_equal, state.learner.obs_stats["state"], source.learner.obs_stats)


def test_independent_players_are_changed_one_by_one():
    before, after = world(box(3), players=2), world(box(4), players=2)
    one, other = (ppax.Independent(ppo(env), 2) for env in (before, after))
    source = trained(one, before)
    _, state = warm(other, after, source, observations=("1:3", "new", "0"))
    old, new = source.learner, state.learner
    kernel = np.asarray(new.params["actor"]["0"]["kernel"])
    np.testing.assert_array_equal(kernel[:, [3, 0, 1]], old.params["actor"]["0"]["kernel"])
    assert not kernel[:, 2].any()
    assert new.obs_stats.mean.high.shape == (2, 4)
    np.testing.assert_array_equal(new.obs_stats.var.high[:, 2], 1.0)


# ---------------------------------------------------------------- actions


def changed_actions(before, after, items, **options):
    share = {name: options.pop(name) for name in ("new_action_probability",) if name in options}
    envs = [world(box(3), space) for space in (before, after)]
    one, other = (ppo(env, **options) for env in envs)
    source = trained(one, envs[0])
    prepared, state = warm(other, envs[1], source, actions=items, **share)
    obs = observations(box(3), 3, rows=200)
    return policy(one, source, obs), policy(other, state, obs), prepared


def test_new_discrete_actions_are_rare_and_never_the_likeliest():
    """Old actions keep their odds; the new ones have at most the given probability, which even odds would reach."""
    before, after, prepared = changed_actions(
        spaces.Discrete(3), spaces.Discrete(5), ("new", "0:3", "new"), new_action_probability=0.04, policy_gain=8.0
    )
    old, new = (np.asarray(jax.nn.softmax(x.distribution.logits), np.float64) for x in (before, after))
    assert old.max() > 0.9  # some states are decided, others not
    np.testing.assert_array_equal(old.argmax(1), new.argmax(1) - 1)
    np.testing.assert_allclose(new[:, 1:4] / new[:, 1:4].sum(1, keepdims=True), old, rtol=1e-4, atol=1e-6)
    added = new[:, 0] + new[:, 4]
    # by hand: each has the geometric mean of the old ones times r, with 2 r / (3 + 2 r) = 0.04
    r = 0.04 * 3 / (2 * 0.96)
    mean = np.exp(np.log(old).mean(1))
    np.testing.assert_allclose(added, 2 * r * mean / (1 + 2 * r * mean), rtol=1e-4)
    assert 0.0 < added.min() < added.max() <= 0.04
    np.testing.assert_allclose(before.value_outputs, after.value_outputs, rtol=1e-6)
    assert "actions: 3 of 5 taken, 2 new, 0 dropped, with a probability of at most 0.04" in str(prepared)


def test_discrete_actions_are_reordered_and_dropped():
    before, after, _ = changed_actions(spaces.Discrete(3), spaces.Discrete(2), ("2", "0"))
    np.testing.assert_allclose(
        after.distribution.logits[:, 0] - after.distribution.logits[:, 1],
        before.distribution.logits[:, 2] - before.distribution.logits[:, 0],
        rtol=1e-4,
        atol=1e-5,
    )


BOX_OPTIONS = {
    "normal": {"log_std_init": -0.5},
    "squashed": {"distribution": "squashed"},
    "state_std": {"state_std": True},
    "beta": {"distribution": "beta"},
    "gsde": {"gsde": True, "log_std_init": -1.5},
}


@pytest.mark.parametrize("kind", BOX_OPTIONS)
def test_new_elements_of_a_box_begin_in_the_middle_and_old_ones_act_as_before(kind):
    low = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Box(-1.0, 1.0, (4,), np.float32)
    before, after, _ = changed_actions(*low, ("new", "1", "0", "new"), **BOX_OPTIONS[kind])
    fields = ("alpha", "beta") if kind == "beta" else ("mean", "log_std")
    for field in fields:
        old, new = (np.broadcast_to(getattr(x.distribution, field), (200, n)) for x, n in ((before, 2), (after, 4)))
        np.testing.assert_allclose(new[:, [2, 1]], old, rtol=1e-5, atol=1e-6)
    middle = 0.5 if kind == "beta" else 0.0  # the mode before it is mapped to the box
    np.testing.assert_allclose(after.distribution.mode()[:, [0, 3]], middle, atol=1e-6)
    np.testing.assert_allclose(before.distribution.mode(), after.distribution.mode()[:, [2, 1]], rtol=1e-5, atol=1e-6)
    if kind == "normal":
        np.testing.assert_array_equal(np.broadcast_to(after.distribution.log_std, (200, 4))[:, [0, 3]], -0.5)


# ---------------------------------------------------------------- refusals

ENV3, ENV4 = world(box(3)), world(box(4))
NINE = spaces.Box(-1.0, 1.0, (9,), np.float32)


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (("0:9",), "'0:9': the other run has 4, numbered from 0 to 3; nearest valid value: 0:4"),
        (("7", "new:2"), "'7': the other run has 4, .*nearest valid value: 3"),
        (("2:1", "new:2"), "'2:1': the other run has 4"),
        (("0:2",), r"\[0:2\]: says 2, and this run has 3; nearest valid value: one more piece, new:1"),
        (("0:4",), r"\[0:4\]: says 4, and this run has 3$"),
        (("0", "old", "new"), '\'old\': must be a place, as "3", places, as "0:4", "new", or "new:3"'),
        (("-1", "0", "1"), "'-1': must be a place"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(items, text):
    with pytest.raises(ppax.ConfigError, match=text):
        read_pieces("init_from.observations", items, 4, 3)


def world_of(space, actions=TWO):
    env = world(space, actions)
    return env, ppo(env)


DICT3 = spaces.Dict({"arm": box(3), "goal": box(2)})
REFUSALS = {
    "twice": (box(3), box(3), {"observations": ("0", "0", "1")}, {}, "number 0 of obs is taken twice"),
    "unknown entry": (
        DICT3,
        DICT3,
        {"observations": ("gaol=new",)},
        {},
        "no entry 'gaol'; there are .*; nearest: goal",
    ),
    "unknown old entry": (
        DICT3,
        DICT3,
        {"observations": ("goal=arn",)},
        {},
        "other run's .* no entry 'arn'.*nearest: arm",
    ),
    "new entry unsaid": (
        spaces.Dict({"arm": box(3)}),
        DICT3,
        {"observations": ("arm",)},
        {},
        "no entry 'goal'; .* a new one is goal=new",
    ),
    "another size": (
        spaces.Dict({"arm": box(2)}),
        spaces.Dict({"arm": box(3)}),
        {"observations": ("arm",)},
        {},
        r"arm is \[3\] here and arm \[2\] in the other run: .* as arm=0:2 arm=new:1",
    ),
    "part of an image": (
        spaces.Dict({"camera": IMAGE}),
        spaces.Dict({"camera": IMAGE}),
        {"observations": ("camera=1:192", "camera=0")},
        {},
        "camera is read by SmallCNN",
    ),
    "no hidden layer": (
        box(3),
        box(4),
        {"observations": ("0:3", "new")},
        {"hidden": ()},
        "leaves the actor no linear first",
    ),
    "residual": (
        box(6),
        box(7),
        {"observations": ("0:6", "new")},
        {"hidden": (6, 6), "residual": True},
        "residual = true adds",
    ),
    "moments": (
        box(3),
        box(4),
        {"observations": ("0:3", "new"), "keep": ("params", "opt_state")},
        {},
        "opt_state of the other run belong to its own spaces; leave opt_state out",
    ),
    "without weights": (
        box(3),
        box(4),
        {"observations": ("0:3", "new"), "keep": ("obs_stats",)},
        {},
        "lacks them; add params",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_observations_that_do_not_fit_are_refused(case):
    old, new, settings, options, text = REFUSALS[case]
    before, after = world(old), world(new)
    one, other = (ppo(env, **options) for env in (before, after))
    source = run_of(one, before, fresh_state(one, before, SETTINGS))
    with pytest.raises(ppax.ConfigError, match=text):
        warm(other, after, source, **settings)


MANY = spaces.MultiDiscrete([2, 3])
REFUSED_ACTIONS = {
    "several": (MANY, {"actions": ("0:5",)}, {}, "is for one Discrete space, or one Box .* has a IndependentHead"),
    "ball": (NINE, {"actions": ("0:9",)}, {"distribution": "ball"}, "this policy has a ball of actions"),
    "twice": (TWO, {"actions": ("0", "0")}, {}, "takes an action twice"),
    "none": (TWO, {"actions": ("new:2",)}, {}, "takes no action of the other run"),
    "too likely": (
        TWO,
        {"actions": ("0", "new"), "new_action_probability": 0.5},
        {},
        "above 0 and below 0.5, .*nearest valid value: 0.25",
    ),
}


@pytest.mark.parametrize("case", REFUSED_ACTIONS)
def test_actions_that_do_not_fit_are_refused(case):
    space, settings, options, text = REFUSED_ACTIONS[case]
    env = world(box(3), space)
    agent = ppo(env, **options)
    with pytest.raises(ppax.ConfigError, match=text):
        warm(agent, env, fresh_state(agent, env, SETTINGS), **settings)


def test_what_a_training_state_does_not_say_is_refused():
    before, after = world(DICT3), world(DICT3)
    agent = ppo(before)
    with pytest.raises(ppax.ConfigError, match=r"TrainState does not say which entries .*start from a run directory"):
        warm(agent, after, fresh_state(agent, before, SETTINGS), observations=("arm",))


@pytest.mark.parametrize(("here", "there"), [((), ("goal",)), (("goal",), ())])
def test_an_entry_that_one_run_alone_normalises_is_refused(here, there):
    """Its numbers would reach the policy in other units."""
    env = world(DICT3)
    one, other = (ppo(env, normalization=Normalization(skip=skip)) for skip in (there, here))
    source = run_of(one, env, fresh_state(one, env, SETTINGS))
    only = "only here" if there else "only there"
    with pytest.raises(ppax.ConfigError, match=rf"obs_stats\.goal\.count .*{only}"):
        warm(other, env, source, observations=("arm",))
    _, state = warm(one, env, source, observations=("arm",))  # the same in both
    jax.tree.map(np.testing.assert_array_equal, state.learner.obs_stats, source.state.learner.obs_stats)


@pytest.mark.parametrize(("here", "there"), [((), ("1",)), (("1",), ())])
def test_numbers_that_are_not_normalised_are_refused(here, there):
    before, after = world(box(3)), world(box(4))
    one, other = (ppo(env, normalization=Normalization(skip=skip)) for env, skip in ((before, there), (after, here)))
    with pytest.raises(ppax.ConfigError, match=r"normalization\.skip leaves out single numbers"):
        warm(other, after, fresh_state(one, before, SETTINGS), observations=("0:3", "new"))


def test_networks_and_groups_with_spaces_of_their_own_are_refused():
    env = ppax.envs.grouped(ppax.make("Pursuit-3", 8), {"prey": [0], "hunters": [1, 2]})
    agent = ppax.Groups({name: ppo(group) for name, group in env.groups.items()}, env.sizes)
    with pytest.raises(ppax.ConfigError, match="groups have a network each"):
        warm(agent, env, fresh_state(agent, env, SETTINGS), observations=("0",))


# ---------------------------------------------------------------- whole runs


def test_a_run_directory_knows_its_spaces_and_a_resume_is_exact(tmp_path):
    def fit(env, run_dir, steps, **changes):
        arguments = {"num_steps": 8, "log": LOG, "run_dir": tmp_path / run_dir} | changes
        return ppax.fit(ppo(env), env, steps, **arguments)

    masked, env = ppax.make("CartPole-v1-masked", 4), ppax.make("CartPole-v1", 4)
    fit(masked, "a", 64)
    start = ppax.InitFrom(tmp_path / "a", observations=("0", "new", "1", "new"))
    whole = fit(env, "whole", 128, init_from=start)
    stopped = fit(env, "half", 128, init_from=start, callbacks=[lambda state, row: row["iteration"] >= 2])
    assert int(stopped.state.iteration) == 2
    again = ppax.resume(tmp_path / "half", console=False)
    jax.tree.map(np.testing.assert_array_equal, whole.state.learner.params, again.state.learner.params)
    table = config.read(tmp_path / "whole" / "run.toml")["init_from"]
    assert table["observations"] == ["0", "new", "1", "new"]
    about = json.loads((tmp_path / "whole" / "about.json").read_text())["starts"][0]["init_from"]
    assert about["changes"] == "observations: 2 of 4 numbers taken, 2 new, 0 dropped"
