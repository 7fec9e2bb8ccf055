"""Masks and episode statistics by the conventions of other libraries."""

import subprocess
import sys
import types
import warnings
from functools import partial
from pathlib import Path

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, TransformReward
from gymnasium.wrappers import vector as of_vectors

import ppax
from ppax.envs import host
from ppax.envs.hosting.conventions import AdaptedEnv
from ppax.networks import mlp, network
from ppax.training.host import Rollouts
from support.host_worlds import ACTIONS, BOX, LIMIT, Maze
from support.team_worlds import Squad

# Worker processes cannot import this file
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.usefixtures("cached_programs")
QUIET = ppax.config.Log(console=False)


def rollout_of(env, num_steps=40):
    agent = ppax.PPO(network(env, hidden=(4,)), num_epochs=1)
    state = ppax.start(agent, env, num_steps, jax.random.key(0))
    with env:
        return Rollouts(agent, env, state)(state.learner, state.actor, jax.random.key(1)).collected


# ---------------------------------------------------------------- masks


class Ruled(Maze):
    """Maze with rules: in each state one action is allowed; it refuses others."""

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {}

    def step(self, action):
        assert action == self.state % ACTIONS, "a forbidden action"
        return super().step(action)

    def rules(self):
        return np.arange(ACTIONS) == self.state % ACTIONS


class Masked(Ruled):
    """The rules by the method of sb3-contrib."""

    def action_masks(self):
        return self.rules()


class Masker(gymnasium.Wrapper):
    """Wrapper with the interface of sb3-contrib's ActionMasker: a function of the environment, or a method's name."""

    def __init__(self, env, mask):
        super().__init__(env)
        self.mask = getattr(env, mask) if isinstance(mask, str) else lambda: mask(env)

    def action_masks(self):
        return self.mask()


class Seen(Ruled):
    """The rules as an entry of the observation."""

    observation_space = spaces.Dict(own=BOX, action_mask=spaces.Box(0, 1, (ACTIONS,), np.int8))

    def reset(self, **options):
        obs, info = super().reset(**options)
        return self._with_rules(obs), info

    def step(self, action):
        obs, *rest = super().step(action)
        return (self._with_rules(obs), *rest)

    def _with_rules(self, obs):
        return {"own": obs, "action_mask": self.rules().astype(np.int8)}


def limited(world):
    return lambda: gymnasium.wrappers.TimeLimit(world(), 4)


WORLDS = {
    "method": Masked,
    "method through a wrapper": limited(Masked),
    "wrapper with a function": lambda: gymnasium.wrappers.TimeLimit(Masker(Ruled(), lambda env: env.rules()), 4),
    "wrapper with a name": lambda: Masker(Ruled(), "rules"),
    "observation": Seen,
}
HOW = {
    "sync": lambda world: host(world, 2),
    "async": lambda world: host(world, 2, vectorization="async", workers=1),
    **{
        mode.name: lambda world, mode=mode: host(SyncVectorEnv([world] * 2, autoreset_mode=mode))
        for mode in AutoresetMode
    },
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", WORLDS)
def test_masks_are_read_where_other_libraries_put_them(place, how):
    """The environment raises an exception for a forbidden action."""
    steps = rollout_of(HOW[how](WORLDS[place])).rollout.steps
    valid = np.asarray(steps.valid)
    assert valid.sum() > 40
    assert (np.asarray(steps.action_mask).sum(-1)[valid] == 1).all()


def of_async_vectors():
    """Print masks and recorded episodes; in a process of its own, because JAX must not be used before a fork."""
    env = host(AsyncVectorEnv([Masked] * 2))
    env.host.reset([0])
    assert (env.host.last[0].mask.sum(-1) == 1).all()
    env.close()
    assert host(AsyncVectorEnv([Maze])).host.spec.mask_size is None  # its worker is alive after the question
    env, stats = host(AsyncVectorEnv([INSIDE["scaled"]])), []
    env.host.reset([0])
    for _ in range(5):
        env.host.send(0, [np.zeros(1, np.int32)])
        stats.append(env.host.receive(0).episode_stats)
    over = [bool(one.over[0]) for one in stats].index(True)
    assert over >= 2
    assert [one.reward[0] for one in stats[: over + 1]] == [1.0] * (over + 1)
    env.close()
    print("as expected")


def test_masks_and_recorded_episodes_are_read_from_async_vectors():
    places = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    code = f"import sys; sys.path[:0] = {places}; import test_conventions; test_conventions.of_async_vectors()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "as expected\n", done.stderr


class Whole(SyncVectorEnv):
    """Vector environment with the method itself."""

    def action_masks(self):
        return np.stack([env.rules() for env in self.envs])


def test_masks_are_read_from_a_method_of_a_vector():
    steps = rollout_of(host(Whole([Ruled] * 2))).rollout.steps
    assert (np.asarray(steps.action_mask).sum(-1)[np.asarray(steps.valid)] == 1).all()


@pytest.mark.parametrize("place", ["method", "observation"])
def test_check_env_and_whole_runs_obey_them(place):
    world = WORLDS[place]
    for env in (world, world()):
        check = ppax.check_env(env)["masks"]
        assert check.passed, check
    env = host(world, 2)
    run = ppax.fit(ppax.PPO(mlp(env, hidden=(8,)), num_epochs=1), env, 64, num_steps=16, log=QUIET)
    assert run.evaluate(4).finished.all()
    env.close()


def test_the_mask_of_info_is_the_one_that_counts():
    class Both(Masked):
        def reset(self, **options):
            obs, _ = super().reset(**options)
            return obs, {"action_mask": self.rules()}

        def step(self, action):
            return (*super().step(action)[:4], {"action_mask": self.rules()})

        def action_masks(self):
            raise AssertionError("not called")

    assert rollout_of(host(Both, 2)).rollout.steps.action_mask is not None


class Valid(Maze):
    def valid_action_mask(self):
        return np.ones(ACTIONS, bool)


class Needing(Maze):
    def action_masks(self, state):
        return np.ones(ACTIONS, bool)


class Property(Maze):
    @property
    def action_masks(self):
        return np.ones(ACTIONS, bool)


class Plural(Maze):
    def reset(self, **options):
        return super().reset(**options)[0], {"action_masks": np.ones(ACTIONS, bool)}


class Misfit(Seen):
    observation_space = spaces.Dict(own=BOX, action_mask=spaces.Box(0, 1, (ACTIONS + 1,), np.int8))

    def step(self, action):
        return (self._with_rules(None), *Maze.step(self, action)[1:])

    def _with_rules(self, obs):
        return {"own": self._obs(), "action_mask": np.ones(ACTIONS + 1, np.int8)}


@pytest.mark.parametrize(
    ("world", "place"),
    [
        (Valid, "Valid has a method or attribute valid_action_mask"),
        (limited(Valid), "Valid has a method or attribute valid_action_mask"),
        (Needing, "Needing has a method or attribute action_masks"),
        (Property, "Property has a method or attribute action_masks"),
        (Plural, r'Plural has info\["action_masks"\]'),
        (Misfit, r'Misfit has obs\["action_mask"\]'),
    ],
)
def test_masks_in_other_places_are_named_in_a_warning(world, place):
    said = (
        rf'{place}, which is not read, and so trains without action masks: give it as info\["action_mask"\], or by a '
    )
    for source, number in ((world, 2), (SyncVectorEnv([world]), None)):
        if not (number is None and world is Plural):  # stacked by Gymnasium, under the same name
            with pytest.warns(UserWarning, match=said):
                host(source, number)
    if world is not Plural:
        with pytest.warns(UserWarning, match=said):
            ppax.check_env(world())


def test_environments_without_masks_cause_no_warning_and_have_no_wrapper():
    with host(Maze, 2) as env:
        env.host.reset([0, 1])
        assert [type(one) for one in env.host.stepper._batch.envs] == [Maze, Maze]
    vector = SyncVectorEnv([Maze] * 2)
    assert host(vector).host.stepper.vector is vector
    host(lambda: gymnasium.make(max(name for name in gymnasium.registry if name.startswith("Taxi-"))), 2)


class Places(Maze):
    """Two places with two and three choices; every form of masks."""

    action_space = spaces.MultiDiscrete([2, 3])
    forms = {  # noqa: RUF012
        "flat": lambda one, two: np.concatenate([one, two]),
        "tuple": lambda one, two: (one, two),
        "padded": lambda one, two: np.stack([np.append(one, 1), two]),
    }

    def __init__(self, form="padded"):
        self.form = self.forms[form]

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {}

    def step(self, action):
        assert action.tolist() == [self.state % 2, self.state % 3], "a forbidden action"
        return super().step(action[1])

    def action_masks(self):
        return self.form(np.arange(2) == self.state % 2, np.arange(3) == self.state % 3)


@pytest.mark.parametrize("form", Places.forms)
def test_masks_of_several_places_have_every_form_of_the_field(form):
    world = partial(Places, form)
    assert ppax.check_env(world)["masks"].passed
    for env in (host(world, 2), host(SyncVectorEnv([world] * 2))):
        steps = rollout_of(env).rollout.steps
        assert (np.asarray(steps.action_mask).sum(-1)[np.asarray(steps.valid)] == 2).all()


class Dicts(Squad):
    """Squad whose observations have the mask beside other entries, with places and padded masks."""

    def observation_space(self, agent):
        return spaces.Dict(observations=super().observation_space(agent), action_mask=spaces.Box(0, 1, (2, 3), np.int8))

    def action_space(self, agent):
        return spaces.MultiDiscrete([2, 3])

    def step(self, actions):
        assert all(action.tolist() == [0, 2] for action in actions.values())
        return super().step({agent: action[0] for agent, action in actions.items()})

    def _see(self, agents):
        mask = np.array([[1, 0, 1], [0, 0, 1]], np.int8)
        return {agent: {"observations": x, "action_mask": mask} for agent, x in super()._see(agents).items()}


def test_masks_of_agents_stand_in_any_dict_and_form():
    steps = rollout_of(host(Dicts, 2)).rollout.steps
    own = np.asarray(steps.valid)
    np.testing.assert_array_equal(
        np.asarray(steps.action_mask)[own], np.broadcast_to([1, 0, 0, 0, 1], (own.sum(), 5)).astype(bool)
    )


class Silent(Squad):
    def valid_actions(self, agent):
        return [0]


def test_masks_of_agents_in_other_places_are_named_in_a_warning():
    with pytest.warns(UserWarning, match="Silent has a method or attribute valid_actions, which is not read"):
        host(Silent, 2)


# ---------------------------------------------------------------- recorded episodes


class Corridor(Maze):
    """Maze with episodes of 3 to 5 steps and the reward 1 in each."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.length = int(self.np_random.integers(3, 6))
        return obs, info

    def step(self, action):
        obs, _, _, _, info = super().step(action)
        return obs, 1.0, self.time >= self.length, False, info


def scaled(env):
    return TransformReward(env, lambda reward: 0.001 * reward)


class Life(gymnasium.Wrapper):
    """An episode of two steps is a life; the game goes on until the inner environment ends it."""

    over = True

    def reset(self, **options):
        out = self.env.reset(**options) if self.over else (self.unwrapped._obs(), {})
        self.over, self.left = False, 2
        return out

    def step(self, action):
        obs, reward, self.over, truncated, info = self.env.step(action)
        self.left -= 1
        return obs, reward, self.over or self.left == 0, truncated, info


INSIDE = {
    "scaled": lambda: scaled(RecordEpisodeStatistics(Corridor())),
    "other name": lambda: scaled(RecordEpisodeStatistics(Corridor(), stats_key="game")),
    "lives": lambda: Life(scaled(RecordEpisodeStatistics(Corridor()))),
}
AROUND = {
    mode.name: lambda mode=mode: of_vectors.TransformReward(
        of_vectors.RecordEpisodeStatistics(SyncVectorEnv([Corridor] * 2, autoreset_mode=mode)), lambda x: 0.001 * x
    )
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)
}
SOURCES = {
    **{
        f"{how} {name}": (how, world)
        for how in ("sync", "async", "NEXT_STEP", "SAME_STEP")
        for name, world in INSIDE.items()
    },
    **{f"around {name}": (None, vector) for name, vector in AROUND.items()},
}


@pytest.mark.parametrize("name", SOURCES)
def test_returns_of_recorded_episodes_are_reported(name):
    """Whole games with the reward 1 in each step, although training sees 0.001, and lives in some cases."""
    how, make = SOURCES[name]
    if how is None or how == "sync" or how == "async":
        env = host(make()) if how is None else HOW[how](make)
    else:
        env = HOW[how](make)
    episodes = jax.tree.map(np.asarray, rollout_of(env, 64).episodes)
    assert episodes.count.sum() > 10
    np.testing.assert_allclose(episodes.return_sum, episodes.length_sum, rtol=1e-5)
    assert 3.0 <= episodes.return_min.min() <= episodes.return_max.max() <= 5.0


def test_evaluations_report_them_too():
    env = host(INSIDE["scaled"], 2)
    run = ppax.fit(ppax.PPO(mlp(env, hidden=(8,)), num_epochs=1), env, 64, num_steps=16, log=QUIET)
    out = run.evaluate(8)
    np.testing.assert_allclose(out.returns, out.lengths)
    np.testing.assert_allclose(out.final_rewards, 1.0)
    env.close()


class Wins(Corridor):
    """Every second episode terminates with success after 3 steps; the others do not end, and fail."""

    games = 0

    def reset(self, *, seed=None, options=None):
        self.games += 1
        return super().reset(seed=seed)

    def step(self, action):
        obs, _, _, _, info = super().step(action)
        won = self.games % 2 == 1 and self.time == 3
        return obs, 1.0, won, False, info | {"is_success": won}


def cut(world, steps, wrap=scaled):
    """Return a function that makes `world`, recorded, and with a time limit around the recorder."""
    return lambda: gymnasium.wrappers.TimeLimit(wrap(RecordEpisodeStatistics(world())), steps)


@pytest.mark.parametrize("how", HOW)
def test_an_episode_that_is_cut_outside_of_the_recorder_counts(how):
    """Its time limit stands around the recorder, which therefore records no episode."""
    # without a reset in the same step, the last reward is that of the recorder, too
    world = cut(Corridor, 2, wrap=lambda env: env) if how == "SAME_STEP" else cut(Corridor, 2)
    episodes = jax.tree.map(np.asarray, rollout_of(HOW[how](world), 30).episodes)
    # two steps, and in some modes a step that resets
    assert episodes.count.sum() == 2 * (15 if how in ("SAME_STEP", "DISABLED") else 10)
    np.testing.assert_allclose(episodes.return_sum, 2.0 * episodes.count)
    np.testing.assert_allclose(episodes.length_sum, 2.0 * episodes.count)


@pytest.mark.parametrize("how", ["sync", "NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_metrics_of_a_cut_episode_are_its_own(how):
    world = cut(Wins, 6, wrap=lambda env: env)
    vector = how != "sync" and SyncVectorEnv([world] * 2, autoreset_mode=AutoresetMode[how])
    env = host(vector, info_metrics=["is_success"]) if vector else host(world, 2)
    episodes = jax.tree.map(np.asarray, rollout_of(env, 44).episodes)
    wins = episodes.metrics["is_success"].sum()
    assert wins == pytest.approx(episodes.count.sum() / 2, abs=1)
    assert episodes.length_sum.sum() == 3 * wins + 6 * (episodes.count.sum() - wins)


@pytest.mark.parametrize("inner", [lambda env: env, RecordEpisodeStatistics], ids=["alone", "recorded"])
def test_evaluations_see_how_an_episode_ended_that_is_cut_outside_of_the_recorder(inner):
    env = host(lambda: inner(Wins()), 1, env_params={"max_steps": 6})
    run = ppax.fit(ppax.PPO(mlp(env, hidden=(8,)), num_epochs=1), env, 16, num_steps=16, log=QUIET)
    for longest in (6, 100):
        out = run.evaluate(8, max_steps=longest)
        won = np.arange(8) % 2 == 0
        np.testing.assert_array_equal(out.lengths, np.where(won, 3, 6))
        np.testing.assert_array_equal(out.terminated, won)
        np.testing.assert_array_equal(out.finished, True)
        np.testing.assert_array_equal(out.metrics["is_success"], won)
        np.testing.assert_array_equal(out.final_rewards, 1.0)
    env.close()


def test_the_loss_of_a_life_needs_no_metrics():
    class Scored(Corridor):
        def step(self, action):
            obs, reward, terminated, truncated, info = super().step(action)
            return obs, reward, terminated, truncated, info | ({"score": self.time} if terminated else {})

    for how in ("sync", "NEXT_STEP"):
        world = lambda: Life(RecordEpisodeStatistics(Scored()))  # noqa: E731
        env = SyncVectorEnv([world] * 2) if how == "NEXT_STEP" else world
        episodes = rollout_of(host(env, 2, info_metrics=["score"]), 64).episodes
        np.testing.assert_allclose(episodes.metrics["score"].sum(), episodes.length_sum.sum())


def test_monitors_of_stable_baselines_are_recorders(monkeypatch):
    """A stand-in with the attributes of sb3's Monitor."""

    class Monitor(gymnasium.Wrapper):
        def reset(self, **options):
            self.rewards = []
            return self.env.reset(**options)

        def step(self, action):
            obs, reward, terminated, truncated, info = self.env.step(action)
            self.rewards.append(float(reward))
            if terminated or truncated:
                info = info | {"episode": {"r": sum(self.rewards), "l": len(self.rewards)}}
            return obs, reward, terminated, truncated, info

    module = types.ModuleType("monitor")
    module.Monitor = Monitor
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.monitor", module)
    episodes = jax.tree.map(np.asarray, rollout_of(host(lambda: scaled(Monitor(Corridor())), 2)).episodes)
    np.testing.assert_allclose(episodes.return_sum, episodes.length_sum, rtol=1e-5)


def test_statistics_of_the_environment_itself_are_kept():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = host(lambda: RecordEpisodeStatistics(Corridor()), 2)
    assert env.host.spec.has_episode_stats
    with env:
        env.host.reset([0, 1])
        assert isinstance(env.host.stepper._batch.envs[0], AdaptedEnv)
    assert LIMIT  # the mazes' own


# ---------------------------------------------------------------- wrappers with statistics of their own


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (lambda: NormalizeObservation(Maze()), "NormalizeObservation has statistics of its own .* normalize_obs=True"),
        (SyncVectorEnv([lambda: NormalizeObservation(Maze())]), "normalize_obs=True"),
        (of_vectors.NormalizeObservation(SyncVectorEnv([Maze])), "normalize_obs=True"),
        (lambda: NormalizeReward(Maze()), "NormalizeReward changes episode_return: .* normalize_reward=True"),
        (lambda: RecordEpisodeStatistics(NormalizeReward(Maze())), "normalize_reward=True"),
        (of_vectors.NormalizeReward(SyncVectorEnv([Maze])), "normalize_reward=True"),
    ],
)
def test_wrappers_that_normalise_cause_a_warning_with_the_remedy(source, said):
    with pytest.warns(UserWarning, match=said):
        host(source)


def test_normalised_rewards_around_a_recorder_are_fine():
    host(lambda: NormalizeReward(RecordEpisodeStatistics(Maze())), 2)
    host(of_vectors.NormalizeReward(of_vectors.RecordEpisodeStatistics(SyncVectorEnv([Maze]))))
    host(of_vectors.NormalizeReward(SyncVectorEnv([lambda: RecordEpisodeStatistics(Maze())])))
