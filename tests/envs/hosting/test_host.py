"""Gymnasium environments in every autoreset mode give the same targets as native environments."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import ppax
from ppax import envs
from ppax.core.imports import Untrusted
from ppax.core.types import ConfigError
from ppax.envs import EnvError, host
from ppax.envs.hosting.gym_vector import autoreset_mode_of
from ppax.envs.suites.gymnasium import gymnasium_spec
from ppax.networks import memories, network
from ppax.ppo.recompute import Minibatch
from ppax.training.collection import collect, force_reset
from ppax.training.host import rollouts
from ppax.training.host.collection import collect_on_host
from ppax.training.host.policy import make_policy
from ppax.training.host.rollouts import reset_if_needed
from support.host_worlds import ACTIONS as CHOICES
from support.host_worlds import BOX, LIMIT, STATES, Board, Late, Maze, NativeMaze, Spaces
from support.learned import learned
from support.worlds import QUICK

NUM_ENVS, NUM_STEPS = 4, 160
pytestmark = pytest.mark.usefixtures("cached_programs")
start = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=QUICK)
value_of = jax.jit(rollouts.value_of, compiler_options=QUICK)
collected_of = jax.jit(rollouts.collected_from, compiler_options=QUICK)
KINDS = ["native", "group", "NEXT_STEP", "SAME_STEP", "DISABLED"]


def make(kind, num_envs=NUM_ENVS):
    if kind == "native":
        return envs.VectorEnv(NativeMaze(), num_envs)
    if kind == "group":
        return host(Maze, num_envs)
    return host(SyncVectorEnv([Maze] * num_envs, autoreset_mode=AutoresetMode[kind]))


def begin(env, num_steps=NUM_STEPS, **options):
    agent = ppax.PPO(network(env, hidden=(4,)), gamma=0.9, **options)
    return agent, start(agent, env, num_steps=num_steps, key=jax.random.key(0))


def played(agent, env, state, num_steps=NUM_STEPS, spoil=None):
    """Collect a rollout on the host, as used for learning."""
    actor = reset_if_needed(agent, env, state.actor, jax.random.key(1))
    policy = make_policy(agent, env, state.learner)
    policy.begin(agent, state.learner, num_steps, jax.random.key(2))
    length = agent.sequence_length(num_steps)
    what = collect_on_host(policy, value_of, env, actor, num_steps, length, (agent, state.learner))
    what = what if spoil is None else spoil(what)
    return collected_of(agent, state.learner, actor, what)


def decided(learner):
    """Return the learner with an almost deterministic policy."""
    policy = jax.tree.map(lambda x: x * 1e6, learner.params["policy"])
    return learner._replace(params=learner.params | {"policy": policy})


def set_up(kind, memory, **options):
    env = make(kind)
    agent = ppax.PPO(network(env, hidden=(8,), memory=memories.GRU() if memory else memories.NoMemory()), **options)
    state = start(agent, env, num_steps=NUM_STEPS, key=jax.random.key(0))
    return agent, env, dataclasses.replace(state, learner=decided(state.learner))


def rollout_of(agent, env, state):
    if isinstance(env, envs.VectorEnv):
        key = jax.random.key(3)
        compiled = jax.jit(collect, static_argnames="num_steps", compiler_options=QUICK)
        return compiled(agent, env, state.learner, state.actor, num_steps=NUM_STEPS, key=key)
    return played(agent, env, state)


def episodes_of(agent, learner, rollout):
    """Return advantage, target, reward and action of each step of whole episodes, by their first observation."""
    batch = learned(agent, learner, rollout).batch
    targets = jax.tree.map(lambda x: np.asarray(x).reshape(NUM_ENVS, NUM_STEPS), batch.targets)
    steps = jax.tree.map(np.asarray, rollout.steps)
    ended, found, cut = steps.terminated | steps.truncated, {}, 0
    for b in range(NUM_ENVS):
        begin = None
        for t in np.flatnonzero(steps.valid[:, b]):
            begin = t if steps.first[t, b] else begin
            if ended[t, b] and begin is not None:
                rows = [u for u in range(begin, t + 1) if steps.valid[u, b]]
                columns = targets.advantage[b], targets.value[b], steps.reward[:, b], steps.action[:, b]
                found[steps.obs[begin, b].tobytes()] = np.stack([x[rows] for x in columns])
                cut += bool(steps.truncated[t, b])
    assert cut > 10
    assert (ended & ~steps.truncated).sum() > 10
    return found


@pytest.mark.parametrize("memory", [False, True], ids=["feedforward", "gru"])
def test_identical_transitions_have_identical_advantages(memory):
    """The policy is deterministic, so the first observation determines the episode."""
    found = {}
    for kind in KINDS:
        agent, env, state = set_up(kind, memory)
        found[kind] = episodes_of(agent, state.learner, rollout_of(agent, env, state).rollout)
    assert max(len(one) for one in found.values()) > STATES - 4
    lengths = {x.shape[1] for x in found["native"].values()}
    assert LIMIT in lengths
    assert min(lengths) < LIMIT
    for kind in KINDS[1:]:
        common = found["native"].keys() & found[kind].keys()
        assert len(common) > STATES - 6, kind
        for first in common:
            np.testing.assert_allclose(found[kind][first], found["native"][first], atol=1e-5, err_msg=kind)


@pytest.mark.parametrize(("kind", "memory"), [("group", True), ("SAME_STEP", True), ("SAME_STEP", False)])
def test_recomputed_targets_equal_those_of_the_rollout(kind, memory):
    """Parameters are unchanged; V of a final observation that has no row of its own is the stored one."""
    agent, env, state = set_up(kind, memory, recompute=Minibatch())
    collected = rollout_of(agent, env, state)
    batch, again = learned(agent, state.learner, collected.rollout)
    assert np.asarray(batch.steps.truncated).sum() > 10
    for old, new in zip(batch.targets, again, strict=True):
        np.testing.assert_allclose(new, old, atol=1e-5)


def test_autoreset_rows_have_no_effect_on_the_update():
    agent, env, state = set_up("NEXT_STEP", memory=False)

    def poison(what):
        idle = ~what.valid
        assert idle.sum() > 10
        return what._replace(reward=np.where(idle, np.nan, what.reward), action=np.where(idle, 2**31 - 1, what.action))

    clean = played(agent, env, state)
    env.close()
    agent, env, _ = set_up("NEXT_STEP", memory=False)
    spoiled = played(agent, env, state, spoil=poison)
    update = jax.jit(agent.update, compiler_options=QUICK)
    updates = [update(state.learner, x.rollout, jax.random.key(4)) for x in (clean, spoiled)]
    for one, other in zip(*map(jax.tree.leaves, updates), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(clean.episodes, spoiled.episodes, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_episodes_and_steps_are_counted_as_gymnasium_counts_them(kind):
    """Compare with environments stepped by hand, one by one."""
    agent, env, state = set_up(kind, memory=False)
    collected = played(agent, env, state)
    steps, episodes = jax.tree.map(np.asarray, (collected.rollout.steps, collected.episodes))
    for b in range(NUM_ENVS):
        valid = steps.valid[:, b]
        ends = (steps.terminated | steps.truncated)[:, b]
        last = np.flatnonzero(ends)[-1]
        assert episodes.count[b] == ends.sum()
        assert episodes.length_sum[b] == valid[: last + 1].sum()
        np.testing.assert_allclose(episodes.return_sum[b], steps.reward[: last + 1, b].sum(), rtol=1e-5)
        single, begun = Maze(), False
        for t in np.flatnonzero(valid):
            if steps.first[t, b]:  # an environment set to the same state
                single.reset(seed=0)
                single.state = next(s for s in range(STATES) if _looks(single, s, steps.obs[t, b]))
                begun = True
            assert begun
            np.testing.assert_array_equal(single._obs(), steps.obs[t, b])
            _, reward, terminated, truncated, _ = single.step(steps.action[t, b])
            got = steps.reward[t, b], steps.terminated[t, b], steps.truncated[t, b]
            assert got == (np.float32(reward), terminated, truncated)


def _looks(env, state, obs):
    env.state, env.time = state, 0
    return np.array_equal(env._obs(), obs)


def test_a_vector_entry_point_has_its_declared_autoreset_mode():
    """CartPole's own vector environment always resets in the next step."""
    vector = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    env = host(vector)
    agent, state = begin(env, 200)
    steps = played(agent, env, state, 200).rollout.steps
    ended = np.asarray(steps.ended)
    assert steps.final_value is None
    assert ended.sum() > 10
    np.testing.assert_array_equal(~np.asarray(steps.valid)[1:], ended[:-1])
    np.testing.assert_array_equal(np.asarray(steps.first)[2:], ended[:-2])


class Silent(VectorEnv):
    """Vector environment whose autoreset mode has a misspelt key."""

    num_envs, single_observation_space, single_action_space = 1, BOX, spaces.Discrete(2)
    metadata = {"autoreseet-mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012


def test_a_missing_autoreset_mode_is_refused():
    with pytest.raises(ConfigError, match="autoreset_mode"):
        host(Silent())


def test_a_later_vector_of_the_same_class_does_not_change_the_mode():
    """Vectors of one class share one metadata dict, which each constructor overwrites."""
    vectors = [SyncVectorEnv([Maze], autoreset_mode=mode) for mode in AutoresetMode]
    assert [autoreset_mode_of(vector) for vector in vectors] == list(AutoresetMode)
    assert [autoreset_mode_of(RecordEpisodeStatistics(vector)) for vector in vectors] == list(AutoresetMode)


OBSERVATIONS = {
    "inner": spaces.Dict(b=spaces.Discrete(3, start=-1), a=spaces.Box(-1.0, 1.0, (2, 2), np.float64)),
    "tuple": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4)]),
    "pixels": spaces.Box(0, 255, (8, 8, 3), np.uint8),
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=5),
    "several": spaces.MultiDiscrete([2, 4, 3]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-0.1, 0.3]), np.array([0.1, 0.7]), dtype=np.float64),
    "hybrid": spaces.Dict(z=spaces.Discrete(2), a=spaces.Tuple([spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3)])),
}


@pytest.mark.parametrize("how", ["group", "SAME_STEP"])
def test_every_kind_of_space(how):
    """The environment checks that each action is in its space, dtype included."""
    one = lambda: Spaces(spaces.Dict(OBSERVATIONS), spaces.Dict(ACTIONS))  # noqa: E731
    env = host(one, 2) if how == "group" else host(SyncVectorEnv([one] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    agent, state = begin(env, 8)
    steps = played(agent, env, state, 8).rollout.steps
    kinds = {str(x.dtype) for x in jax.tree.leaves(steps.obs)}
    assert kinds <= {"float32", "int32", "int8", "uint8"}
    assert np.isfinite(np.asarray(steps.log_prob)).all()
    assert int(steps.terminated.sum()) == 4


def test_masks_are_stored_and_obeyed():
    env = host(lambda: Spaces(BOX, spaces.Discrete(4), np.array([0, 1, 0, 1], np.int8)), 3)
    agent, state = begin(env, 40)
    steps = played(agent, env, state, 40).rollout.steps
    np.testing.assert_array_equal(steps.action_mask, np.broadcast_to([False, True, False, True], (40, 3, 4)))
    assert set(np.unique(steps.action)) == {1, 3}


@pytest.mark.parametrize("how", ["group", *AutoresetMode], ids=str)
def test_no_forbidden_action_is_taken_and_final_masks_may_be_empty(how):
    """The environment counts forbidden actions, over some hundred episodes."""
    env = host(Board, 4) if how == "group" else host(SyncVectorEnv([Board] * 4, autoreset_mode=how))
    Board.forbidden = 0
    agent, state = begin(env)
    steps = played(agent, env, state).rollout.steps
    assert int(steps.ended.sum()) > 50
    assert Board.forbidden == 0
    assert np.isfinite(np.asarray(steps.log_prob)).all()
    assert len(np.unique(steps.action)) == CHOICES
    assert ppax.check_env(Board())["masks"].passed


@pytest.mark.parametrize("how", ["group", *AutoresetMode], ids=str)
def test_a_mask_without_allowed_action_is_refused(how):
    one = lambda: Spaces(BOX, spaces.Discrete(3), np.zeros(3, np.int8))  # noqa: E731
    env = host(one, 2) if how == "group" else host(SyncVectorEnv([one] * 2, autoreset_mode=how))
    agent, state = begin(env, 8)
    with pytest.raises(EnvError, match="environment 0: its action mask allows no action at step 0 of a rollout"):
        played(agent, env, state, 8)


@pytest.mark.parametrize("key", ["action_mask", "episode_stats"])
@pytest.mark.parametrize("how", ["group", "vector"])
def test_masks_or_statistics_in_some_infos_only_are_refused(how, key):
    """The error is raised before training for the first step, later in the step itself."""
    given = np.ones(CHOICES, np.int8) if key == "action_mask" else (0.0, False)
    world = lambda: Late(lambda out: (*out[:4], {key: given}))  # noqa: E731
    env = host(world, 2) if how == "group" else host(SyncVectorEnv([world] * 2))
    agent, state = begin(env, 16)
    with pytest.raises(EnvError, match=rf'info\["{key}"\] comes here and did not come with the first reset'):
        played(agent, env, state, 16)
    if key == "action_mask":
        env = host(lambda: Board(["step"]), 2)
        agent = ppax.PPO(network(env, hidden=(4,)))
        with pytest.raises(ConfigError, match="masks: there is none after reset"):
            ppax.fit(agent, env, 64, num_steps=16, log=ppax.config.Log(console=False))


@pytest.mark.parametrize("space", [spaces.Tuple([Maze.action_space]), spaces.Dict(a=Maze.action_space)], ids=str)
def test_masks_of_actions_with_several_components_are_refused_of_a_vector(space):
    """Those of single environments: tests/training/host/test_joint_masks.py."""
    world = lambda: Board(action_space=space, wrap=lambda x: (x,))  # noqa: E731
    with pytest.raises(ConfigError, match=r"masks of Dict and Tuple actions are those of single environments: pass"):
        host(SyncVectorEnv([world]))


def test_vector_environments_use_episode_stats_of_info():
    """Gymnasium's vectors stack the pairs of all environments; with SAME_STEP the last pair is in `final_info`."""
    for mode in AutoresetMode:
        one = lambda: Changed(lambda env, out: (*out[:-1], {"episode_stats": (2.0 * (len(out) == 5), len(out) == 5)}))  # noqa: E731
        env = host(SyncVectorEnv([one] * 2, autoreset_mode=mode))
        agent, state = begin(env, 24)
        collected = played(agent, env, state, 24)
        steps = np.asarray(collected.rollout.steps.valid).sum(axis=0)
        np.testing.assert_array_equal(collected.episodes.count, steps)  # each step is an episode with return 2
        np.testing.assert_array_equal(collected.episodes.return_sum, 2.0 * steps)


class Changed(Maze):
    """Maze whose step results are passed through `change`."""

    def __init__(self, change):
        self.change = change

    def reset(self, **options):
        return self.change(self, super().reset(**options))

    def step(self, action):
        return self.change(self, super().step(action))


WRONG = {
    "one entry": (0, lambda x: x[:1], r"its observation has the shape \[(2, )?1\], its space \[(2, )?5\]"),
    "scalar": (0, lambda x: np.float32(3.0), r"its observation has the shape \[2?\], its space \[(2, )?5\]"),
    "complex": (0, lambda x: x.astype(np.complex64), "its observation is complex64, which cannot be cast to float32"),
    "reward": (1, lambda x: np.array([x]), "its reward is "),
    "complex reward": (1, lambda x: np.complex64(x), "its reward is "),
    "flag": (2, lambda x: np.array([x]), "its terminated is "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_shape_is_refused_at_any_step(name):
    """NumPy would silently broadcast the array or drop the imaginary part."""
    index, change, said = WRONG[name]
    env = host(lambda: Late(lambda out: (*out[:index], change(out[index]), *out[index + 1 :])), 2)
    agent, state = begin(env, 16)
    with pytest.raises(EnvError, match=rf"(?s)environment 0 failed in step \d, action \d\n.*{said}"):
        played(agent, env, state, 16)


class Wide(SyncVectorEnv):
    """Vector environment of a third party whose arrays have wrong shapes from its fifth step on."""

    changed, steps = (lambda out: out,), 0

    def step(self, actions):
        self.steps += 1
        out = super().step(actions)
        return self.changed[0](out) if self.steps >= 5 else out


@pytest.mark.parametrize("name", ["one entry", "scalar", "complex", "reward"])
def test_a_wrong_shape_of_a_vector_environment_is_refused_at_any_step(name):
    index, change, said = WRONG[name]
    change = (lambda x: x[:, :1]) if name == "one entry" else (lambda x: x[:, 0]) if name == "scalar" else change
    vector = Wide([Maze] * 2)
    vector.changed = (lambda out: (*out[:index], change(out[index]), *out[index + 1 :]),)
    env = host(vector)
    agent, state = begin(env, 16)
    with pytest.raises(EnvError, match=said):
        played(agent, env, state, 16)


def test_action_repeat_sums_rewards_up_to_the_episode_end():
    env = host(lambda: Spaces(BOX, spaces.Discrete(2)), 2, action_repeat=2)  # ends after three steps
    agent, state = begin(env, 6)
    steps = played(agent, env, state, 6).rollout.steps
    np.testing.assert_array_equal(np.asarray(steps.reward)[:, 0], [2, 1, 0, 2, 1, 0])
    np.testing.assert_array_equal(np.asarray(steps.terminated)[:, 0], [0, 1, 0, 0, 1, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vectorization": "threads"}, "sync, async"),
        ({"num_envs": 3, "source": [Maze, Maze]}, "2 functions"),
        ({"num_envs": 3, "source": SyncVectorEnv([Maze])}, "leave num_envs out"),
        ({"vectorization": "async", "source": SyncVectorEnv([Maze])}, "leave it out"),
        ({"source": lambda: 3}, "gymnasium.Env"),
    ],
)
def test_invalid_options_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        host(**{"source": Maze} | arguments)


def test_unknown_ids_and_options_of_other_environments_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'gymnasium/CartPole-v1'"):
        ppax.make("gymnasium/CartPoole-v1")


def test_an_id_uses_the_newest_version_warns_of_an_older_one_and_imports_nothing(monkeypatch):
    registry = dict(gymnasium.registry)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", registry)
    monkeypatch.setattr(gymnasium, "registry", registry)
    for version in (1, 2):
        gymnasium.register(f"Own-v{version}", "support.host_worlds:Maze", max_episode_steps=version)
    env = ppax.make("gymnasium/Own", 2)
    assert (env.num_envs, gymnasium_spec("Own").max_episode_steps, gymnasium_spec("Own-v2").version) == (2, 2, 2)
    with pytest.warns(UserWarning, match="gymnasium/Own-v1 is out of date: there is v2"):
        assert gymnasium_spec("Own-v1").max_episode_steps == 1
    with pytest.raises(ConfigError, match="did you mean 'gymnasium/Own-v"):
        ppax.make("gymnasium/Owm-v2")
    with pytest.raises(Untrusted, match=r"env = 'gymnasium/own_module:Own-v1': .*Nothing was imported"):
        ppax.make("gymnasium/own_module:Own-v1")


@pytest.mark.parametrize(
    ("verb", "name", "instead"),
    [
        (lambda agent, env, state: ppax.train(agent, env, state, 1), "train", "call ppax.fit"),
        (lambda agent, env, state: jax.jit(ppax.train)(agent, env, state, 1), "train", "call ppax.fit"),
        (lambda agent, env, state: ppax.sweep(agent, env, state, 1), "sweep", "ppax.fit once for each seed"),
        (lambda agent, env, state: ppax.start_sweep(agent, env, 8, state.key[None]), "start_sweep", "ppax.fit once"),
        (
            lambda agent, env, state: ppax.collect(agent, env, state.learner, state.actor, 8, state.key),
            "collect",
            "ppax.compile",
        ),
    ],
    ids=["train", "jit", "sweep", "start_sweep", "collect"],
)
def test_compiled_functions_name_the_alternative_for_host_environments(verb, name, instead):
    env = host(Maze, 2, name="maze")
    agent, state = begin(env, 8)
    with pytest.raises(ConfigError, match=f"ppax.{name} works with .*; maze is stepped on the host: .*{instead}"):
        verb(agent, env, state)


def test_the_last_step_before_a_forced_reset_is_a_truncation():
    """The bootstrap value is the rollout's last value, also if the final observation has no row."""
    agent, env, state = set_up("SAME_STEP", memory=False)
    state = dataclasses.replace(state, iterations_per_env_reset=1)
    collected = played(agent, env, state)
    steps, last = collected.rollout.steps, np.asarray(collected.rollout.last_value)
    cut = jax.jit(force_reset, compiler_options=QUICK)(agent, env, collected, jnp.bool_(True), jax.random.key(5))
    going = ~np.asarray(steps.ended[-1])
    assert going.any()
    np.testing.assert_array_equal(np.asarray(cut.rollout.steps.truncated[-1])[going], True)
    np.testing.assert_array_equal(np.asarray(cut.rollout.steps.final_value[-1])[going], last[going])
    np.testing.assert_array_equal(cut.rollout.steps.final_value[:-1], steps.final_value[:-1])
    assert not np.asarray(cut.actor.env_state).any()  # no position: the environments reset
