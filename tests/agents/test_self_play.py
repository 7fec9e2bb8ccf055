"""Self-play: past selves play as they did, teach nothing, and are rated by what comes of it."""

import dataclasses
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.agents import self_play
from ppax.agents.self_play import START, Pool, SelfPlay, SelfPlayState, win_probability
from ppax.arrays.metrics import Table, averaged, pack
from ppax.arrays.sequences import where_rows, zero_rows
from ppax.core.types import ActorState, Collected, ConfigError, Episodes, Rollout, TrainState, Transition, Update
from ppax.envs import grouped
from ppax.networks import network
from ppax.networks.composed import NONE
from ppax.networks.memories import GRU
from ppax.ppo.minibatches import Shuffle
from ppax.training.loop import IterationInputs, check_sizes, episode_metrics, finish_iteration
from support.worlds import QUICK

NUM_ENVS, NUM_STEPS = 8, 8
POOL = Pool(every=2, size=3, share=0.5, opponents=2)


@pytest.fixture(scope="module")
def world():
    """Pursuit with a prey and two hunters who share their weights; a run of an iteration, compiled."""
    env = grouped(ppax.make("Pursuit-3", NUM_ENVS), {"prey": [0], "hunters": [1, 2]})
    ppo = {
        name: ppax.PPO(network(group, hidden=(4,)), minibatch=Shuffle(1), num_epochs=1, learning_rate=0.01)
        for name, group in env.groups.items()
    }
    agent = SelfPlay(ppax.Groups(ppo, env.sizes), POOL, NUM_ENVS)
    state = jax.jit(lambda key: ppax.start(agent, env, NUM_STEPS, key), compiler_options=QUICK)(jax.random.key(0))
    run = jax.jit(lambda state: ppax.train(agent, env, state, 1, 100), compiler_options=QUICK)
    return agent, env, state, run


def same(one, other):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@ppax.part
class AlwaysFirst(ppax.Extension):
    """Extension that takes action 0 in every step."""

    def init_acting(self, agent, num_streams):
        return jnp.zeros(num_streams)

    def act(self, agent, acting, choice, key):
        return ppax.extensions.Acted(acting + 1.0, jnp.zeros_like(choice.action))


def test_extensions_act_for_current_learners_and_not_for_past_selves(world, vmapped_keys):
    agent, env, _, _ = world
    agents = {name: dataclasses.replace(one, extensions=(AlwaysFirst(),)) for name, one in agent.agent.agents.items()}
    agent = dataclasses.replace(agent, agent=ppax.Groups(agents, env.sizes))
    state = ppax.start(agent, env, NUM_STEPS, jax.random.key(0))
    rollout = ppax.collect(agent, env, state.learner, state.actor, NUM_STEPS, jax.random.key(1)).rollout
    for block in self_play.past_self_blocks(NUM_ENVS, env.sizes, POOL.share, POOL.opponents):
        action = np.asarray(rollout.steps.action[block.name])
        past = np.zeros(action.shape[1], bool)
        past[block.rows] = True
        assert (action[:, ~past] == 0).all()
        assert (action[:, past] != 0).any()


def params(learners):
    return {name: learner.params for name, learner in learners.items()}


@pytest.mark.nightly
def test_the_pool_keeps_what_the_learners_were(world, vmapped_keys):
    _, _, state, run = world
    kept = [params(state.learner.current)]
    for iteration in range(1, 9):
        before = state.learner
        state = run(state).state
        now = state.learner
        assert not same(params(now.current), params(before.current))
        if iteration % POOL.every:
            assert same(now.pool, before.pool)
            assert same(now.opponents, before.opponents)
            continue
        kept.append(params(now.current))
        assert int(now.num_snapshots) == len(kept)
        for age, was in enumerate(reversed(kept[-POOL.size :])):
            place = (len(kept) - 1 - age) % POOL.size
            pool = jax.tree.map(lambda x, place=place: x[place], params(now.pool))
            for x, y in zip(jax.tree.leaves(pool), jax.tree.leaves(was), strict=True):
                np.testing.assert_allclose(x, y, rtol=0, atol=1e-7)  # computed twice, it may be rounded twice
        assert not now.counts.any()  # episodes that are running began against others
        for name, places in now.opponents.items():
            assert (np.asarray(places) < len(kept)).all()
            np.testing.assert_array_equal(now.past_elo[name][(len(kept) - 1) % POOL.size], now.elo[name])


@pytest.mark.nightly
def test_past_selves_act_by_their_own_policies(world, vmapped_keys):
    """In the last environments, one half for each group, two past selves play; all others are what they are now."""
    agent, env, state, run = world
    for _ in range(5):  # one more than when they were last kept
        state = run(state).state
    learner = state.learner
    old = {"prey": jnp.array([1, 0]), "hunters": jnp.array([0, 2])}
    learner, actor = learner._replace(opponents=old), state.actor
    key = jax.random.split(jax.random.key(3), env.num_streams)
    seen = (actor.carry, actor.obs, actor.first, None)
    act = jax.jit(lambda learner, key: agent.act(learner, *seen, key))
    got = act(learner, key)
    current = agent.agent.act(learner.current, *seen, jax.random.clone(key))
    # prey is a past self in environments 4 and 5, the hunters in 6 and 7, where they are two
    places = {"prey": {4: 1, 5: 0}, "hunters": {12: 0, 13: 0, 14: 2, 15: 2}}
    for name, own in places.items():
        pool = learner.pool[name]
        for row in range(len(got.action[name])):
            if row not in own:
                np.testing.assert_allclose(got.action[name][row], current.action[name][row], rtol=1e-5, atol=1e-6)
                continue
            past = jax.tree.map(lambda x, at=own[row]: x[at], pool)
            one = jax.tree.map(lambda x, row=row: x[row : row + 1], (actor.carry[name], actor.obs[name]))
            keys = agent.agent.apart(jax.random.clone(key))[name][row : row + 1]
            alone = agent.agent.agents[name].act(past, *one, jnp.ones(1, bool), None, keys)
            np.testing.assert_allclose(got.action[name][row], alone.action[0], rtol=1e-5, atol=1e-6)
            assert abs(got.action[name][row] - current.action[name][row]).max() > 1e-6


@pytest.mark.nightly
def test_rows_of_past_selves_are_left_out_of_the_update(world):
    """Whatever stands in their rows changes no bit; in the rows of the others it would."""
    agent, env, state, _ = world
    key = jax.random.key(5)
    rollout = jax.jit(lambda s: ppax.collect(agent, env, s.learner, s.actor, NUM_STEPS, key).rollout)(state)
    update = jax.jit(lambda rollout: agent.update(state.learner, rollout, jax.random.key(6)).learner.current)
    before = update(rollout)
    streams = np.arange(env.num_streams).reshape(NUM_ENVS, 3)

    def poisoned(rows, trees):
        steps = rollout.steps
        obs = {name: steps.obs[name].at[:, own].set(9.0) for name, own in trees.items()}
        value = steps.value.at[:, rows].set(9.0)
        return rollout._replace(steps=dataclasses.replace(steps, obs=obs, value=value))

    past = np.concatenate([streams[4:6, 0], streams[6:, 1:].ravel()])
    assert same(before, update(poisoned(past, {"prey": np.array([4, 5]), "hunters": np.arange(12, 16)})))
    other = update(poisoned(streams[:1].ravel(), {"prey": np.array([0]), "hunters": np.array([0, 1])}))
    assert not same(before, other)
    assert agent.learners(env.num_streams)[0][1] == 6
    assert agent.learners(env.num_streams)[1][1] == 12


def by_hand(memory=NONE):
    """The agent of `world`, and what it remembers, without an environment that is stepped."""
    env = grouped(ppax.make("Pursuit-3", NUM_ENVS), {"prey": [0], "hunters": [1, 2]})
    ppo = {name: ppax.PPO(network(group, hidden=(4,), memory=memory)) for name, group in env.groups.items()}
    agent = SelfPlay(ppax.Groups(ppo, env.sizes), POOL, NUM_ENVS)
    learner = SelfPlayState(
        current={},
        pool={},
        num_snapshots=jnp.int32(2),
        opponents={"prey": jnp.array([1, 0]), "hunters": jnp.array([0, 1])},
        elo={"prey": jnp.float32(1100.0), "hunters": jnp.float32(900.0)},
        past_elo={"prey": jnp.array([800.0, 1000.0, 0.0]), "hunters": jnp.array([1000.0, 700.0, 0.0])},
        returns=jnp.zeros((NUM_ENVS, 3)),
        counts=jnp.arange(NUM_ENVS) != 7,
        iteration=jnp.int32(3),
    )
    return agent, env, learner


def seen(rewards, valid, first):
    """A rollout of these, [T, E, A] each."""
    reward, valid, first = (jnp.asarray(x.reshape(len(x), -1)) for x in (rewards, valid, first))
    steps = Transition(None, None, None, jnp.zeros_like(reward), reward, ~valid, ~valid, first, valid, ())
    return Rollout(steps, jnp.zeros(reward.shape[1]), reward)


def test_ratings_by_hand():
    """Environment 4 ends once, the past prey wins; 6 twice, the past hunters win once; nothing else counts."""
    agent, _, learner = by_hand()
    rewards = np.zeros((6, NUM_ENVS, 3), np.float32)
    valid, first = np.ones(rewards.shape, bool), np.zeros(rewards.shape, bool)
    rewards[0, 4] = [1.0, -1.0, 0.5]  # the hunters earn -0.25 on average
    rewards[0, 6] = [0.0, 3.0, -1.0]
    rewards[2, 6] = [2.0, 0.0, 1.0]
    rewards[0, 5], rewards[0, 0] = [-5.0, 1.0, 1.0], [9.0, 0.0, 0.0]
    # 7: an episode that began before the opponents were drawn
    for env, step in ((0, 1), (4, 1), (6, 1), (6, 3), (7, 4)):
        valid[step, env], first[step + 1, env] = False, True  # the environment begins anew, and then all act again
        rewards[step, env] = np.nan
    after = agent._rate(learner, seen(rewards, valid, first))
    prey = 16.0 * (1.0 - 1.0 / (1.0 + 10 ** ((900.0 - 1000.0) / 400.0)))
    hunters = 16.0 * (0.5 - 1.0 / (1.0 + 10 ** ((1100.0 - prey * 0.0 - 1000.0) / 400.0)))
    np.testing.assert_allclose(after.past_elo["prey"], [800.0, 1000.0 + prey, 0.0], rtol=1e-5)
    np.testing.assert_allclose(after.past_elo["hunters"], [1000.0 + hunters, 700.0, 0.0], rtol=1e-5)
    np.testing.assert_allclose(float(after.elo["hunters"]), 900.0 - prey, rtol=1e-5)
    np.testing.assert_allclose(float(after.elo["prey"]), 1100.0 - hunters, rtol=1e-5)
    np.testing.assert_array_equal(after.counts[7], True)
    np.testing.assert_array_equal(after.returns[5], [-5.0, 1.0, 1.0])
    np.testing.assert_array_equal(after.returns[6], 0.0)


@pytest.mark.parametrize("games", [1, 1000])
def test_ratings_find_the_true_difference_with_any_number_of_games(games):
    """Players 200 points apart, in expected scores; the sum of the games' gains, the control, overshoots for ever."""
    true = 1.0 / (1.0 + 10 ** (-200.0 / 400.0))
    summed, ahead = 0.0, jnp.float32(0.0)
    for _ in range(200):
        ahead += 2.0 * self_play.gain(jnp.float32(games), games * true, self_play.win_probability(ahead, 0.0), 16.0)
        summed += 2.0 * 16.0 * games * (true - 1.0 / (1.0 + 10 ** (-summed / 400.0)))
    np.testing.assert_allclose(ahead, 200.0, atol=1.0)
    assert abs(summed - 200.0) < 1.0 if games == 1 else abs(summed - 200.0) > 1000.0


def test_an_episode_begins_with_those_who_are_there():
    """The prey of environment 7 is absent at the start and appears in the second step: one episode, which counts."""
    agent, _, learner = by_hand()
    rewards = np.ones((4, NUM_ENVS, 3), np.float32)
    valid, first = np.ones(rewards.shape, bool), np.zeros(rewards.shape, bool)
    first[0, 7], first[1, 7] = [False, True, True], [True, False, False]
    valid[0, 7, 0], valid[3, 7] = False, False
    rewards[:2, 7, 1:] = 3.0
    ahead = learner._replace(returns=jnp.full((NUM_ENVS, 3), 9.0))
    after = agent._rate(ahead, seen(rewards[:3], valid[:3], first[:3]))
    np.testing.assert_array_equal(after.returns[7], [2.0, 7.0, 7.0])
    assert bool(after.counts[7])
    ended = agent._rate(ahead, seen(rewards, valid, first))
    assert ended.past_elo["hunters"][1] > learner.past_elo["hunters"][1]  # it has won: the second seat's past self


def test_episodes_truncated_by_a_forced_reset_are_not_rated():
    """All environments begin anew at the first step, from episodes in which the past selves were ahead."""
    agent, _, learner = by_hand()
    rewards = np.ones((3, NUM_ENVS, 3), np.float32)
    first = np.zeros(rewards.shape, bool)
    first[0] = True
    ahead = jnp.broadcast_to(jnp.array([5.0, -5.0, -5.0]), (NUM_ENVS, 3))
    after = agent._rate(learner._replace(returns=ahead), seen(rewards, np.ones(rewards.shape, bool), first))
    for field in ("elo", "past_elo"):
        assert same(getattr(after, field), getattr(learner, field))
    np.testing.assert_array_equal(after.returns, 3.0)  # of the new episodes alone
    assert after.counts.all()


def test_episodes_of_a_group_are_those_that_it_plays_as_it_is_now():
    """Environments 4 and 5 have a past prey, 6 and 7 past hunters: their returns are nobody's who learns."""
    agent, env, _ = by_hand()
    past = np.zeros((NUM_ENVS, 3), bool)
    past[4:6, 0], past[6:, 1:] = True, True
    returns = jnp.asarray(np.where(past, 100.0, [3.0, -1.0, -2.0]).reshape(-1))
    ones = jnp.ones(env.num_streams, jnp.int32)
    current = self_play.current_agents(agent._blocks(), NUM_ENVS, 3).reshape(-1)
    every = Episodes(ones, returns, 4 * ones, 0.0 * returns, returns, returns)
    own = zero_rows(jnp.asarray(current), every)
    metrics = averaged(pack(episode_metrics(own, 3, env.sizes)), 1)
    expected = {"prey": 3.0, "hunters": -1.5, "hunters_0": -1.0, "hunters_1": -2.0}
    assert {name: float(metrics[f"episode_return/{name}"]) for name in expected} == expected
    assert {name: int(metrics[f"episodes/{name}"]) for name in expected} == {
        "prey": 6,
        "hunters": 12,
        "hunters_0": 6,
        "hunters_1": 6,
    }
    assert float(metrics["episode_return"]) == 0.0
    extremes = {"prey": (3.0, 3.0), "hunters": (-2.0, -1.0), "hunters_0": (-1.0, -1.0)}
    for name, (low, high) in extremes.items():
        assert float(metrics[f"episode_return_min/{name}"]) == low
        assert float(metrics[f"episode_return_max/{name}"]) == high
    assert float(metrics["episode_return_std/hunters"]) == 0.5
    assert float(metrics["episode_return_std/prey"]) == 0.0


def test_a_new_opponent_in_a_running_episode_starts_with_an_initial_carry():
    """Seats of the prey: the first has another self now, the second the same; the hunters' places: 1 was replaced."""
    agent, env, learner = by_hand(GRU(2))
    carry = jax.tree.map(jnp.ones_like, agent.initial_carry(env.num_streams))
    opponents = {"prey": jnp.array([2, 0]), "hunters": jnp.array([0, 1])}
    before = learner._replace(num_snapshots=jnp.int32(4))  # the next place in a pool of 3 is 1
    after = before._replace(num_snapshots=jnp.int32(5), opponents=opponents)
    memories = jax.tree.map(where_rows, agent.replaced(before, after), agent.initial_carry(env.num_streams), carry)
    emptied = {"prey": [4], "hunters": [14, 15]}  # environment 4; environment 7, in which there are two hunters
    for name, rows in emptied.items():
        for x in jax.tree.leaves(memories[name]):
            np.testing.assert_array_equal(np.flatnonzero((x == 0.0).all(axis=1)), rows)
            np.testing.assert_array_equal(np.delete(x, rows, axis=0), 1.0)
    none_drawn = agent.replaced(before, before._replace(opponents=opponents))
    assert not any(mask.any() for mask in none_drawn.values())


def test_an_iteration_leaves_out_what_past_selves_earned_and_remember(monkeypatch):
    agent, env, learner = by_hand(GRU(2))
    opponents = {"prey": jnp.array([2, 2]), "hunters": jnp.array([2, 2])}
    after = learner._replace(num_snapshots=jnp.int32(3), opponents=opponents)
    nothing = {"prey": (), "hunters": ()}
    learned = Update(dict(after.current), Table({"grad_norm": jnp.float32(1.0)}), extensions=nothing)
    monkeypatch.setattr(ppax.Groups, "rollout", lambda self, name, rollout: rollout)
    monkeypatch.setattr(self_play, "without_streams", lambda rollout, rows: rollout)
    monkeypatch.setattr(ppax.Groups, "learn", lambda *_: learned)
    monkeypatch.setattr(self_play, "with_snapshot", lambda *_: after)
    ones = jnp.ones(env.num_streams)
    actor = ActorState((), (), ones == 0, None, jax.tree.map(jnp.ones_like, agent.initial_carry(24)), ones, ones, ones)
    rollout = seen(*(np.ones((2, NUM_ENVS, 3), kind) for kind in (np.float32, bool, bool)))
    state = TrainState(learner, actor, jax.random.key(0), jnp.int32(3), jnp.zeros(2, jnp.uint32), NUM_STEPS)
    now = IterationInputs(agent, state.key, state.key, state.key)
    out = finish_iteration(now, env, state, Collected(actor, rollout, Episodes(*[ones] * 6)))
    assert float(out.metrics["episodes/prey"]) == 6.0
    assert not out.state.actor.carry["prey"]["actor"][4:6].any()
    assert out.state.actor.carry["prey"]["actor"][:4].all()


def test_opponents_are_sampled_as_configured():
    wins, age = jnp.array([0.5, 0.25, 0.125]), jnp.array([2, 1, 0])
    drawn = {kind: np.exp(Pool(sampling=kind).logits(wins, age)) for kind in ("uniform", "recent", "hard")}
    shares = {kind: x / x.sum() for kind, x in drawn.items()}
    np.testing.assert_allclose(shares["uniform"], np.ones(3) / 3)
    np.testing.assert_allclose(shares["recent"], np.array([1 / 3, 1 / 2, 1]) / (11 / 6), rtol=1e-5)
    np.testing.assert_allclose(shares["hard"], np.array([16, 4, 1]) / 21, rtol=1e-5)
    assert float(win_probability(jnp.float32(1400.0), jnp.float32(1000.0))) == pytest.approx(10 / 11)


PLAN = """
env = "Pursuit-2"
num_envs = 8
num_steps = 8
total_steps = 512
[log]
every = 1
console = false
[self_play]
every = 1
size = 2
opponents = 1
sampling = "hard"
[agent]
num_epochs = 1
[agent.minibatch]
num_minibatches = 2
[agent.network]
hidden = [4]
[agent.network.memory]
part = "gru"
[groups.prey]
players = [0]
[groups.hunter]
players = [1]
agents = "independent"
"""


def test_a_run_file_says_it():
    agent, env, run = config.build(tomllib.loads(PLAN))
    assert isinstance(agent, SelfPlay)
    assert agent.pool == run.self_play == Pool(every=1, size=2, opponents=1, sampling="hard")
    again = config.build(config.describe_run(agent, env, run))
    assert jax.tree.structure(again.agent) == jax.tree.structure(agent)
    assert (again.env.sizes, again.run) == (env.sizes, run)


def test_places_of_the_pool_that_are_empty_have_no_rating():
    agent, _, learner = by_hand()
    for count, known in ((1, [True, False, False]), (2, [True, True, False]), (5, [True] * 3)):
        table = agent._ratings(learner._replace(num_snapshots=jnp.int32(count)))
        assert [not np.isnan(pack(table)[f"elo/prey_past_{place}"]) for place in range(3)] == known
        assert np.isfinite(table["elo/prey"])


@pytest.mark.nightly
def test_a_resumed_run_knows_its_past_selves(tmp_path):
    agent, env, run = config.build(tomllib.loads(PLAN))
    whole = ppax.fit(agent, env, run.total_steps, 0, tmp_path / "whole", NUM_STEPS, run.log)
    ppax.fit(
        agent, env, run.total_steps, 0, tmp_path / "half", NUM_STEPS, run.log, [lambda _, row: row["iteration"] == 2]
    )
    resumed = ppax.resume(tmp_path / "half", console=False)
    assert same(whole.state.learner, resumed.state.learner)
    assert jax.tree.structure(resumed.agent) == jax.tree.structure(whole.agent)
    table = {name for name in whole.history[-1] if name.startswith("elo")}
    assert table == {f"elo/{group}{past}" for group in ("prey", "hunter") for past in ("", "_past_0", "_past_1")}
    assert whole.history[0]["elo/prey"] == START


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: checked(opponents=3), r"no room for 3 past selves of each of 2 groups; nearest num_envs: 12"),
        (
            lambda: checked(every=None),
            r"self_play.every = none: must be a number of iterations, as ppax.Pool\(every=10",
        ),
        (lambda: checked(one_group=True), "takes at least two groups"),
        (
            lambda: for_more_environments(),
            r"num_envs = 8: Pursuit-3 has num_envs = 12; write SelfPlay\(groups, pool, env",
        ),
        (lambda: checked(devices=2), "program.devices = 2: self-play runs on one; write 1"),
        (lambda: config.build(tomllib.loads(PLAN.split("[groups")[0])), "self_play: Pursuit-2 has no groups"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong, text):
    with pytest.raises(ConfigError, match=text):
        wrong()


def checked(one_group=False, devices=None, **pool):
    players = {"all": [0, 1]} if one_group else {"prey": [0], "hunter": [1]}
    env = grouped(ppax.make("Pursuit-2", 8), players)
    program = ppax.Program(devices=devices)
    agents = {name: ppax.PPO(network(group), program=program) for name, group in env.groups.items()}
    SelfPlay(ppax.Groups(agents, env.sizes), Pool(**{"every": 1, **pool}), 8).check()


def for_more_environments():
    agent, env, _ = by_hand()
    check_sizes(agent, dataclasses.replace(env, num_envs=12), NUM_STEPS)
