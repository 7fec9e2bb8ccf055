"""Turn-based environments: every decision against the official loop of PettingZoo, targets by hand, memory, ratings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.agents.self_play import Pool
from ppax.core.types import ConfigError
from ppax.envs import grouped, host
from ppax.networks import memories, network
from ppax.ppo.batches import next_values
from ppax.ppo.minibatches import Shuffle
from ppax.training.host import Rollouts
from ppax.training.host.streams import settle
from support.turn_games import AGENTS, Scripted, Turn, official, random_script
from support.worlds import QUICK

pytestmark = pytest.mark.usefixtures("cached_programs")
GAMMA, LAMBDA, STEPS = 0.9, 0.8, 92
SCRIPTS = [random_script(np.random.default_rng(seed)) for seed in range(40)]


def agent_of(env, **options):
    return ppax.PPO(network(env, hidden=(4,), **options), gamma=GAMMA, advantage=ppax.advantages.GAE(LAMBDA))


def rollouts_of(agent, env, num_steps=STEPS, count=1):
    """Rollouts one after the other, and the learner."""
    start = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=QUICK)
    state = start(agent, env, num_steps=num_steps, key=jax.random.key(0))
    collect, actor, found = Rollouts(agent, env, state), state.actor, []
    for number in range(count):
        found.append(collect(state.learner, actor, jax.random.key(number)).collected)
        actor = found[-1].actor
    return state.learner, found


def rows_of(decisions):
    """Row of each decision of a stream: after a truncated one follows a row of its last observation."""
    cut = [one.truncated and not one.terminated for one in decisions]
    return [k + sum(cut[:k]) for k in range(len(decisions))]


def expected_of(steps, scripts=SCRIPTS):
    """Decisions of each stream in the official loop, with the actions of a rollout; and their rows."""
    num_steps = len(steps.valid)
    blind = official(Scripted(scripts, masks=False), lambda agent, k: 0, num_steps)  # turns do not depend on actions
    rows = {agent: rows_of(blind[agent]) for agent in AGENTS}
    taken = official(
        Scripted(scripts), lambda agent, k: int(steps.action[rows[agent][k], AGENTS.index(agent)]), num_steps
    )
    return [(taken[agent], rows[agent]) for agent in AGENTS]


@pytest.fixture(scope="module")
def played():
    agent, env = agent_of(host(lambda: Scripted(SCRIPTS), 1)), host(lambda: Scripted(SCRIPTS), 1)
    learner, (collected,) = rollouts_of(agent, env)
    return agent, learner, jax.tree.map(np.asarray, collected)


def test_rows_are_the_decisions_of_the_official_loop(played):
    """Observations, masks, first, rewards up to the next turn, and ends, of agents that end at different times."""
    steps, seen = played[2].rollout.steps, dict.fromkeys(("terminated", "truncated", "open", "shared"), 0)
    for stream, (decisions, rows) in enumerate(expected_of(steps)):
        known = [one for one in decisions if one.reward is not None]
        for k, (want, t) in enumerate(zip(decisions, rows, strict=True)):
            np.testing.assert_array_equal(steps.obs[t, stream], want.obs)
            np.testing.assert_array_equal(steps.action_mask[t, stream], want.mask)
            assert steps.first[t, stream] == want.first
            assert steps.valid[t, stream] == (want.reward is not None), "others have not answered the last one"
            if want.reward is None:
                seen["open"] += 1
                continue
            before_open = k + 1 == len(known) < len(decisions) and not want.terminated
            assert steps.reward[t, stream] == want.reward
            assert steps.terminated[t, stream] == want.terminated
            assert steps.truncated[t, stream] == ((want.truncated and not want.terminated) or before_open)
            if want.truncated and not want.terminated:
                np.testing.assert_array_equal(steps.obs[t + 1, stream], want.final_obs)
                assert not steps.valid[t + 1, stream]
            seen["terminated"] += want.terminated
            seen["truncated"] += want.truncated
        assert steps.valid[:, stream].sum() == len(known)
        assert len(known) > 6
    assert seen["terminated"] > 2
    assert seen["truncated"] > 2
    assert seen["open"] > 0


def test_targets_are_those_of_each_agents_own_decisions(played):
    """GAE by hand in float64 over the decisions of one agent, without the turns of others."""
    agent, _, collected = played
    steps = collected.rollout.steps
    next_value = jax.vmap(next_values, (1, 0), 1)(steps, collected.rollout.last_value)
    targets = jax.vmap(agent.advantage, (1, 1, None), 1)(steps, next_value, GAMMA)
    for stream, (decisions, rows) in enumerate(expected_of(steps)):
        value, advantage = steps.value[:, stream].astype(float), 0.0
        for k in reversed(range(len(decisions))):
            one, t = decisions[k], rows[k]
            if one.reward is None:
                continue
            ends = one.terminated or one.truncated
            after = value[t + 1] if one.truncated or not ends else 0.0  # the next decision, or the last observation
            after = 0.0 if one.terminated else after
            goes_on = not ends and decisions[k + 1].reward is not None
            delta = one.reward + GAMMA * after - value[t]
            advantage = delta + GAMMA * LAMBDA * (advantage if goes_on else 0.0)
            np.testing.assert_allclose(targets.advantage[t, stream], advantage, rtol=2e-5, atol=2e-5)


def test_episodes_are_counted_as_they_were_played(played):
    """Returns have all rewards, also those before an agent's first turn; lengths have all its decisions."""
    episodes, left, number = played[2].episodes, STEPS, 0
    returns, lengths, count = (dict.fromkeys(AGENTS, 0.0) for _ in range(3))
    while left > 0:
        own, turns = dict.fromkeys(AGENTS, 0.0), dict.fromkeys(AGENTS, 0)
        playing = set(AGENTS)
        for turn in SCRIPTS[number][:left]:
            turns[turn.agent] += 1
            for agent in playing:
                own[agent] += turn.rewards.get(agent, 0.0)
            for agent in playing & {*turn.terminations, *turn.truncations}:
                returns[agent] += own[agent]
                lengths[agent] += turns[agent]
                count[agent] += 1
                playing.discard(agent)
        left, number = left - len(SCRIPTS[number]) - 1, number + 1
    assert min(count.values()) > 2
    for stream, agent in enumerate(AGENTS):
        assert episodes.count[stream] == count[agent]
        assert episodes.length_sum[stream] == lengths[agent]
        assert episodes.return_sum[stream] == returns[agent]


def test_settle_against_the_definition():
    """Rows by a direct computation for each stream: flags and rewards at random."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        shape = int(rng.integers(1, 12)), 3
        valid, ended = rng.random(shape) < 0.5, rng.random(shape) < 0.2
        ended[1:] &= ~(ended[:-1] & ended[1:])
        valid[1:] &= ~ended[:-1]  # the step after an end is a reset, or the agent is absent
        truncated = ended & (rng.random(shape) < 0.5)
        terminated, reward = ended & ~truncated, rng.normal(size=shape).astype(np.float32)
        rows = settle(reward, terminated, truncated, valid)
        for b in range(3):
            place, turns = 0, np.flatnonzero(valid[:, b])
            for number, t in enumerate(turns):
                following = turns[number + 1] if number + 1 < len(turns) else shape[0]
                ends = [s for s in range(t, following) if ended[s, b]]
                until = ends[0] if ends else following - 1
                known = bool(ends) or number + 1 < len(turns)
                assert rows.order[place, b] == t
                assert rows.valid[place, b] == known
                if known:
                    np.testing.assert_allclose(
                        rows.reward[place, b], reward[t : until + 1, b].sum(), rtol=1e-5, atol=1e-6
                    )
                    assert rows.until[place, b] == until
                    assert rows.terminated[place, b] == (bool(ends) and terminated[until, b])
                place += 1
                if ends and truncated[until, b] and place < shape[0]:
                    assert rows.order[place, b] == until + 1
                    assert not rows.valid[place, b]
                    place += 1
            assert not rows.valid[place:, b].any()


def test_the_memory_has_the_agents_own_decisions_only():
    """Values and log-probabilities of a GRU, from the decisions of one stream alone, over two rollouts."""
    for length in (None, 5):
        env = host(lambda: Scripted(SCRIPTS), 1)
        agent = ppax.PPO(network(env, hidden=(4,), memory=memories.GRU(4)), seq_len=length, minibatch=Shuffle(1))
        learner, found = rollouts_of(agent, env, 20, count=2)
        step = jax.jit(agent.policy)
        carry = [agent.start_carry(1) for _ in AGENTS]
        for collected in found:
            steps = jax.tree.map(np.asarray, collected.rollout.steps)
            acts = np.asarray(collected.rollout.played.valid)
            for stream in range(3):
                for k in range(int(acts[:, stream].sum())):
                    t = _row(steps, stream, k)
                    inputs = steps.obs[t, stream], steps.first[t, stream], steps.action_mask[t, stream]
                    policy = step(learner, carry[stream], *(jnp.asarray(x)[None] for x in inputs))
                    carry[stream] = policy.carry
                    np.testing.assert_allclose(policy.value[0], steps.value[t, stream], rtol=1e-4, atol=1e-5)
                    log_prob = policy.distribution.log_prob(jnp.asarray(steps.action[t, stream])[None])
                    np.testing.assert_allclose(log_prob[0], steps.log_prob[t, stream], rtol=1e-4, atol=1e-5)


def _row(steps, stream, k):
    """Row of the k-th decision: last observations follow truncated valid rows, and are followed by a first one."""
    row, number = -1, -1
    while number < k:
        row += 1
        final = (
            row and steps.valid[row - 1, stream] and steps.truncated[row - 1, stream] and not steps.valid[row, stream]
        )
        open_ = final and not steps.valid[row:, stream].any()
        number += not final or (open_ and number + 1 == k)
    return row


def test_rewards_of_the_turns_of_others_count_in_evaluations():
    """A game by hand: a acts twice, b once; b's move costs a 5 after its last turn."""
    script = [Turn("a", {"a": 1.0, "b": 0.5}), Turn("a", {"b": 2.0}), Turn("b", {"a": -5.0, "b": 4.0}, ("a", "b"))]
    env = host(lambda: Scripted([script], ("a", "b")), 2)
    agent = ppax.PPO(network(env, hidden=(4,)))
    run = ppax.fit(agent, env, total_steps=2 * 2 * 8, num_steps=8, log=ppax.Log(console=False))
    evaluation = run.evaluate(8)
    returns = {name: one.mean_return for name, one in evaluation.by_agent.items()}
    assert returns == {"a": -4.0, "b": 6.5}
    assert {name: one.mean_length for name, one in evaluation.by_agent.items()} == {"a": 2.0, "b": 1.0}
    assert run.history[-1]["episode_return/a"] == -4.0
    assert run.history[-1]["episode_return/b"] == 6.5


def test_self_play_rates_games_by_all_rewards():
    """a wins by the rewards of own turns, and loses 10 in b's turn: the group a loses every game that it plays."""
    script = [Turn("a", {"a": 3.0}), Turn("b", {"a": -10.0, "b": 1.0}, ("a", "b"))]
    env = grouped(host(lambda: Scripted([script], ("a", "b")), 8), {"a": [0], "b": [1]})
    groups = ppax.Groups({name: ppax.PPO(network(one, hidden=(4,))) for name, one in env.groups.items()}, env.sizes)
    agent = ppax.SelfPlay(groups, Pool(every=1, size=2, opponents=1), 8)
    run = ppax.fit(agent, env, total_steps=8 * 2 * 12 * 3, num_steps=12, log=ppax.Log(console=False, every=1))
    last = run.history[-1]
    assert last["elo/a"] < 1000.0 < last["elo/b"]


def test_refusals():
    with pytest.raises(ConfigError, match="action_repeat = 2: Scripted is turn-based: the next turn"):
        host(lambda: Scripted(SCRIPTS), 1, action_repeat=2)

    class turn_based_aec_to_parallel_wrapper:  # noqa: N801  # as in PettingZoo
        possible_agents = ("a",)
        observation_space = action_space = reset = step = lambda self: None

        def close(self):
            pass

    with pytest.raises(ConfigError, match=r"turn_based_aec_to_parallel: .* pass a function that makes the turn-based"):
        host(turn_based_aec_to_parallel_wrapper, 1)
