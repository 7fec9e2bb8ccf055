"""Preprocessing of Atari games, on a small fake game that records its actions, and on real games if installed."""

import importlib.util
from functools import partial

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.core.types import ConfigError
from ppax.envs import host
from ppax.envs.suites.atari_game import FIRE, NOOP, AtariGame, arcade, area_weights
from ppax.networks import encoders, network
from ppax.networks.observations import entries
from ppax.training.host import Rollouts
from support.worlds import QUICK

# frames until the game is over, and between lost lives; the game continues for a while without lives
OVER, LOST = 124, (40, 80, 120)
HEIGHT, WIDTH = 4, 6


class Game(gymnasium.Env):
    """Game whose frames get brighter by 1; every second one is dark on the left; each frame scores `score`."""

    observation_space = spaces.Box(0, 255, (HEIGHT, WIDTH), np.uint8)
    action_space = spaces.Discrete(4)

    def __init__(self, score=3.0, fires=True, render_mode=None):
        self.score, self.fires, self.render_mode, self.log, self.resets = score, fires, render_mode, [], 0

    def get_action_meanings(self):
        return ["NOOP", "FIRE" if self.fires else "UP", "RIGHT", "LEFT"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.resets, self.log = 0, self.resets + 1, []
        return self._see(), {"lives": 3}

    def step(self, action):
        self.time += 1
        self.log.append(int(action))
        return self._see(), self.score, self.time == OVER, False, {"lives": 3 - sum(self.time >= t for t in LOST)}

    def _see(self):
        frame = np.full((HEIGHT, WIDTH), self.time, np.uint8)
        frame[:, : WIDTH // 2] *= self.time % 2
        return frame


def game(size=2, **options):
    raw = {name: options.pop(name) for name in ("score", "fires") if name in options}
    return AtariGame(partial(Game, **raw), size=size, **options)


def test_a_game_starts_with_1_to_30_noop_frames_and_fire():
    counts = set()
    for seed in range(200):
        env = game()
        env.reset(seed=seed)
        noops = env.game.log.index(FIRE)
        assert env.game.log == [NOOP] * noops + [FIRE] * 4
        counts.add(noops)
    assert counts == set(range(1, 31))
    env = game(noop_max=0, fires=False)
    env.reset(seed=0)
    assert env.game.log == []


def test_frame_skip_of_4_and_maximum_of_the_last_two_frames():
    env = game(noop_max=0, fires=False)
    env.reset(seed=0)
    obs, *_ = env.step(2)
    assert env.game.log == [2] * 4
    # frame 4 is dark on the left, frame 3 is not
    np.testing.assert_array_equal(obs[-1], [[3, 4], [3, 4]])


def test_rewards_are_clipped_to_signs_and_statistics_have_the_score():
    for score, sign in ((3.0, 1.0), (-0.5, -1.0), (0.0, 0.0)):
        env = game(score=score)
        env.reset(seed=0)
        _, reward, *_, info = env.step(2)
        assert (reward, info["episode_stats"]) == (sign, (4 * score, False))
        assert isinstance(reward, float)
    env = game(clip_rewards=False)
    env.reset(seed=0)
    assert env.step(2)[1] == 12.0


def test_frame_stack_of_4_starts_with_copies_of_the_first_frame():
    env = game(noop_max=0, fires=False, size=2)
    obs, _ = env.reset(seed=0)
    assert obs.shape == (4, 2, 2)
    np.testing.assert_array_equal(obs[:, 0, 1], [0, 0, 0, 0])
    seen = []
    for _ in range(5):
        before = obs
        obs = env.step(2)[0]
        np.testing.assert_array_equal(obs[:-1], before[1:])
        seen.append(int(obs[-1, 0, 1]))
    assert seen == [4, 8, 12, 16, 20]
    assert before is not obs  # earlier observations are not overwritten


def play_to(env, *, most=1000):
    """Step until an end; return the summed statistics reward and the flags of the end."""
    total, over = 0.0, False
    for _ in range(most):
        _, _, terminated, truncated, info = env.step(2)
        total += info["episode_stats"][0]
        over = over or info["episode_stats"][1]
        if terminated or truncated:
            break
    return total, over


def test_a_lost_life_terminates_for_learning_but_not_the_game():
    env = game()
    score = env.reset(seed=0)[1]["episode_stats"][0]
    for lives in (2, 1):
        more, over = play_to(env)
        assert not over
        assert env.game.resets == 1
        assert env._lives == lives
        frames = len(env.game.log)
        obs, info = env.reset()
        assert env.game.resets == 1  # the game goes on
        assert env.game.log[frames:] == [NOOP] * 4 + [FIRE] * 4
        assert (obs == obs[:1]).all()
        assert info["episode_stats"] == (24.0, False)
        score += more + 24.0
    more, over = play_to(env)
    assert over
    assert score + more == 3.0 * OVER == 3.0 * len(env.game.log)  # every frame's score is counted exactly once
    env.reset()
    assert env.game.resets == 2


def test_without_end_on_life_loss_only_the_end_of_the_game_terminates():
    env = game(end_on_life_loss=False)
    begun = env.reset(seed=0)[1]["episode_stats"][0]
    assert play_to(env) == (3.0 * OVER - begun, True)


def test_a_reset_with_a_seed_starts_a_new_game_between_lives():
    env = game()
    env.reset(seed=0)
    play_to(env)
    env.reset(seed=1)
    assert env.game.resets == 2


def test_a_game_that_ends_in_the_noop_frames_of_a_life_is_counted():
    env = game()
    env.reset(seed=0)
    play_to(env)
    env.game.time = OVER - 2
    _, info = env.reset()
    assert info["episode_stats"] == (6.0, True)
    assert env.game.resets == 2


# ---------------------------------------------------------------- frames


def test_frames_are_scaled_by_area_averaging():
    np.testing.assert_allclose(area_weights(2, 5), [[0.4, 0.4, 0.2, 0, 0], [0, 0, 0.2, 0.4, 0.4]], rtol=1e-6)
    frame = np.random.default_rng(0).integers(0, 256, (210, 160)).astype(np.float64)
    small = area_weights(84, 210) @ frame @ area_weights(84, 160).T
    # oracle: subpixels, each inside one pixel of the scaled frame, as 210 * 2 = 84 * 5
    pieces = np.repeat(np.repeat(frame, 2, axis=0), 21, axis=1)
    expected = pieces.reshape(84, 5, 84, 40).mean(axis=(1, 3))
    np.testing.assert_allclose(small, expected, atol=1e-3)


def test_preset_network_of_the_paper_scales_pixels_once():
    """The preset on the fake game: convolutions, one dense layer of 512 with relu, shared by policy and value."""
    env = host(partial(game, size=84), 2, name="atari/Small")
    plan = config.completed({**config.find("atari/Breakout"), "num_envs": 2}, env).config
    agent, _, run = config.build(plan, env)
    (entry,) = entries(env.observation_space)
    assert entry.pixels
    (reader,) = agent.network.actor_readers
    assert reader.encoder == encoders.NatureCNN(layout="chw")
    assert reader.size() == 7 * 7 * 64
    scaled = entry.read(np.full((4, 84, 84), 255, np.uint8), np.float32)
    np.testing.assert_array_equal(scaled, 1.0)
    params = jax.eval_shape(agent.network.init, jax.random.key(0))
    assert agent.network.hidden == (512,)
    assert agent.network.activation == "relu"
    shared = sum(leaf.size for leaf in jax.tree.leaves(params))
    filters = 4 * 64 * 32 + 32 + 32 * 16 * 64 + 64 + 64 * 9 * 64 + 64
    assert shared == filters + (3136 * 512 + 512) + (512 * 4 + 4) + (512 + 1)  # one tower
    assert (run.num_steps, agent.gamma, agent.loss.clip_eps, agent.learning_rate) == (128, 0.99, 0.1, 2.5e-4)
    assert not agent.normalize_obs


# ---------------------------------------------------------------- statistics


def test_episode_statistics_are_of_whole_games():
    """Check the statistics of rollouts and of an evaluation."""
    env = host(partial(game, fires=False, noop_max=0), 2)
    agent = ppax.PPO(network(env, hidden=(4,)))
    state = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=QUICK)(
        agent, env, num_steps=80, key=jax.random.key(0)
    )
    collected = Rollouts(agent, env, state)(state.learner, state.actor, jax.random.key(1)).collected
    _, rollout, episodes = collected
    steps = jax.tree.map(np.asarray, rollout.steps)
    # lives end at frames 40, 80 and, with the game, 124; each later one starts with 4 no-op frames
    ends = np.flatnonzero(steps.terminated[:, 0])
    assert ends[:4].tolist() == [9, 19, 30, 41]
    assert (steps.reward[steps.valid] == 1.0).all()
    assert (steps.reward[~steps.valid] == 0.0).all()
    np.testing.assert_array_equal(episodes.count, [2, 2])
    np.testing.assert_array_equal(episodes.return_sum, [2 * 3.0 * OVER] * 2)
    np.testing.assert_array_equal(episodes.length_sum, [2 * 29] * 2)
    # the discounted return of reward scaling restarts with each life
    np.testing.assert_allclose(rollout.reward_trace[[9, 10, 11], 0], [(1 - 0.99**10) / 0.01, 0.0, 1.0], rtol=1e-5)
    result = ppax.evaluate(agent, env, state.learner, jax.random.key(2), 4)
    np.testing.assert_array_equal(result.returns, [3.0 * OVER] * 4)
    np.testing.assert_array_equal(result.lengths, [29] * 4)


# ---------------------------------------------------------------- real games

real = pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="ale-py is not installed")


@real
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Breakout", "MsPacman"])
def test_a_real_game(name):
    env = ppax.make(f"atari/{name}", 2)
    assert env.observation_space.shape == (4, 84, 84)
    report = ppax.check_env(env)
    assert report.passed, str(report)
    single = AtariGame(partial(arcade, name), render_mode="rgb_array")
    single.reset(seed=0)
    assert single.render().shape == (210, 160, 3)
    assert single._fires == (name == "Breakout")
    single.close()


@real
@pytest.mark.nightly
def test_games_in_worker_processes_equal_those_in_one_process():
    seen = []
    for how in ("sync", "async"):
        with ppax.make("atari/Breakout", 2, vectorization=how) as env:
            env.host.reset([3, 4])
            for t in range(60):
                for number, rows in enumerate(env.host.batches):
                    env.host.send(number, [np.full(rows.stop - rows.start, 2 + t // 7 % 2)])
                    env.host.receive(number)
            seen.append(np.concatenate([one.obs[0] for one in env.host.last]))
    np.testing.assert_array_equal(*seen)


@real
def test_invalid_options_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'atari/Breakout'"):
        ppax.make("atari/Brakout", 2)
    with pytest.raises(ConfigError, match="for 4 frames already; leave"):
        ppax.make("atari/Breakout", 2, action_repeat=2)


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is not None, reason="ale-py is installed")
def test_missing_library_error_names_the_extra():
    with pytest.raises(ImportError, match=r'pip install "ppax\[atari\]"'):
        ppax.make("atari/Breakout", 2)
