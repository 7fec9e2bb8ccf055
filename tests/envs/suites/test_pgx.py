"""Games of Pgx against their rules, written again in Python; needs the extra pgx."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.envs import TimeLimit
from ppax.envs.suites import registry

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Pgx's own
    pytest.mark.usefixtures("lenient"),
    pytest.mark.skipif(not registry.installed("pgx"), reason='pip install "ppax[pgx]"'),
]
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


@pytest.fixture
def lenient():
    """Suites reuse keys and promote ranks, also in threads that compile."""
    before = jax.config.jax_debug_key_reuse, jax.config.jax_numpy_rank_promotion
    jax.config.update("jax_debug_key_reuse", False)
    jax.config.update("jax_numpy_rank_promotion", "allow")
    yield
    jax.config.update("jax_debug_key_reuse", before[0])
    jax.config.update("jax_numpy_rank_promotion", before[1])


@pytest.fixture(scope="module")
def tic_tac_toe():
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        env = ppax.make("pgx/tic_tac_toe", 1).env
        yield env, jax.jit(env.reset), jax.jit(env.step)


def view(board, player, mover):
    """Observation of tic-tac-toe [3, 3, 3]: own stones, the other's, and whether it is the player's turn."""
    board = np.reshape(board, (3, 3))
    return np.stack([board == player, board == 1 - player, np.full((3, 3), player == mover)], axis=-1)


def wins(board, player):
    return any(all(board[i] == player for i in line) for line in LINES)


@pytest.mark.parametrize("seed", range(12))
def test_tic_tac_toe_follows_its_rules(tic_tac_toe, seed):
    _, reset, step = tic_tac_toe
    rng, now = np.random.default_rng(seed), reset(jax.random.key(seed))
    board, mover = np.full(9, -1), int(now.state.current_player)
    for _ in range(9):
        for player in (0, 1):
            np.testing.assert_array_equal(now.obs[player], view(board, player, mover))
        np.testing.assert_array_equal(now.action_mask[mover], board < 0)
        assert not now.action_mask[1 - mover].any()
        action = rng.integers(0, 9, 2)  # that of the player who waits is ignored
        action[mover] = rng.choice(np.flatnonzero(board < 0))
        now = step(now.state, jnp.asarray(action), jax.random.key(0))
        board[action[mover]] = mover
        won = wins(board, mover)
        over = won or (board >= 0).all()
        expected = np.array([1.0, -1.0] if mover == 0 else [-1.0, 1.0]) * won
        np.testing.assert_array_equal(now.reward, expected)
        assert now.reward.dtype == jnp.float32
        assert now.terminated.tolist() == [over, over]
        assert now.truncated.tolist() == [False, False]
        if over:
            return
        mover = 1 - mover
    pytest.fail("the game did not end")


def test_either_player_begins(tic_tac_toe):
    _, reset, _ = tic_tac_toe
    assert {int(reset(jax.random.key(i)).state.current_player) for i in range(16)} == {0, 1}


def test_observations_are_bytes_and_players_have_names(tic_tac_toe):
    env, reset, _ = tic_tac_toe
    assert env.num_agents == 2
    assert env.agent_names == ("player_0", "player_1")
    assert reset(jax.random.key(0)).obs.dtype == jnp.uint8
    assert env.observation_space.dtype == np.uint8
    assert env.observation_space.shape == (3, 3, 3)


def test_players_see_their_own_card_only():
    reset = jax.jit(ppax.make("pgx/kuhn_poker", 1).env.reset)
    dealt = set()
    for seed in range(40):
        begin = reset(jax.random.key(seed))
        cards = np.asarray(begin.state._cards)
        dealt.add(tuple(cards.tolist()))
        for player in (0, 1):
            np.testing.assert_array_equal(np.asarray(begin.obs[player, :3]), np.arange(3) == cards[player])
            assert begin.obs[player, -1] == (player == begin.state.current_player)
    assert len(dealt) == 6


def test_the_game_of_one_player_has_no_agent_axis_and_its_mask():
    """2048: a tile moved left; the reward is the sum of the tiles that were merged."""
    env = ppax.make("pgx/2048", 1).env
    begin = jax.jit(env.reset)(jax.random.key(0))
    board = jnp.array([1, 1, 0, 0, 2, 2, 1, 0, 3, 1, 2, 1, 1, 2, 1, 2], jnp.int32)  # powers of 2
    state = begin.state.replace(_board=board, legal_action_mask=jnp.ones(4, bool))
    after = jax.jit(env.step)(state, 0, jax.random.key(1))
    assert env.num_agents is None
    assert after.reward.shape == ()
    assert after.reward == 4 + 8  # 2 + 2, 4 + 4
    assert after.action_mask.shape == (4,)
    merged = np.array([[2, 0, 0, 0], [3, 1, 0, 0], [3, 1, 2, 1], [1, 2, 1, 2]])
    values = np.asarray(after.obs).argmax(-1)
    new = np.argwhere(values != merged)
    assert len(new) == 1  # one new tile, a 2 or a 4, in an empty place
    assert merged[tuple(new[0])] == 0
    assert values[tuple(new[0])] in (1, 2)


def test_games_of_minatar_are_truncated():
    env = ppax.make("pgx/minatar-breakout", 1, env_params={"max_steps": 2}).env
    assert isinstance(env, TimeLimit)
    assert ppax.make("pgx/minatar-breakout", 1).env.max_steps == 1000
    now, step = jax.jit(env.reset)(jax.random.key(0)), jax.jit(env.step)
    flags = []
    for t in range(2):
        now = step(now.state, 0, jax.random.key(t))
        flags.append((bool(now.terminated), bool(now.truncated)))
    assert flags == [(False, False), (False, True)]
    assert not isinstance(ppax.make("pgx/tic_tac_toe", 1).env, TimeLimit)


@pytest.mark.nightly
def test_past_selves_are_played_and_rated():
    players = {"one": {"players": ["player_0"]}, "two": {"players": ["player_1"]}}
    agent = {"network": {"hidden": [8]}, "num_epochs": 1}
    sizes = {"num_envs": 16, "num_steps": 16, "total_steps": 16 * 16 * 2 * 4, "self_play": {"every": 1, "size": 2}}
    run = ppax.build("pgx/tic_tac_toe", groups=players, agent=agent, log={"every": 1}, **sizes).fit()
    ratings = run.history[-1]
    assert {"elo/one", "elo/two", "elo/one_past_0"} <= set(ratings)
    assert ratings["elo/one"] != 1000.0
    returns = [row["episode_return/one"] for row in run.history]
    assert all(abs(x) <= 1.0 for x in returns if np.isfinite(x))


@pytest.mark.nightly
def test_a_match_counts_won_games():
    env = ppax.make("pgx/tic_tac_toe", 16)
    agent = {"network": {"hidden": [8]}, "num_epochs": 1}
    policies = {name: ppax.build(env, agent=agent, total_steps=2048, seed=i).fit() for i, name in enumerate("ab")}
    result = ppax.match(policies, env, episodes=32)
    played = result.wins + result.wins.T + result.draws
    np.testing.assert_allclose(played[0, 1], 1.0, atol=1e-6)
    np.testing.assert_allclose(result.returns[0, 1], result.wins[0, 1] - result.wins[1, 0], atol=1e-6)


# ---------------------------------------------------------------- learning


@pytest.mark.nightly
def test_a_trained_player_wins_against_random_moves():
    run = ppax.build("pgx/tic_tac_toe", total_steps=1_000_000, agent={"gamma": 1.0, "ent_coef": 0.02}).fit()
    policy, rng, total = run.policy(), np.random.default_rng(0), 0.0
    for game in range(200):
        board, mine = np.full(9, -1), game % 2  # the policy begins in every second game
        for turn in range(9):
            player = turn % 2
            legal = board < 0
            seen = view(board, player, player).astype(np.uint8)[None]
            own = player == mine
            action = int(policy.act(seen, mask=legal[None])[0]) if own else rng.choice(np.flatnonzero(legal))
            board[action] = player
            if wins(board, player):
                total += 1.0 if own else -1.0
                break
    assert total / 200 > 0.6  # random against random: 0
