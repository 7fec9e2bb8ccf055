"""Environments that never end: what is logged, evaluated, stopped by, ranked and said of them, in JAX and in Python.

Both worlds pay the time since the reset, so that returns are triangular numbers; the first also pays what an action of
1 adds.
"""

import dataclasses
import json
import math

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.cli import main
from ppax.config import BestSettings, EvalSettings, Log
from ppax.core.types import ConfigError, EnvReset, EnvStep, Episodes, part
from ppax.envs import ActionRepeat, TimeLimit, VectorEnv, builtin, host
from ppax.envs.vector import never_ends
from ppax.networks import mlp
from ppax.sweeps import Halving, decisions
from ppax.training.collection import start_actor, with_running
from ppax.training.evaluation import episode_limit, has_ended
from support.worlds import Counter, Team

QUIET = Log(every=1, console=False)
pytestmark = pytest.mark.usefixtures("quick_programs")


@part
class Clock:
    """The reward is the time since the reset; the step's flags are the constant False."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = None

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.zeros(1))

    def step(self, state, action, key):
        time, never = state + 1, jnp.zeros((), bool)
        reward = time.astype(jnp.float32)
        return EnvStep(time, jnp.ones(1), reward, never, never, metrics={"squared": reward**2})


@part
class Finite(Clock):
    """A clock that is always truncated, by a constant."""

    def step(self, state, action, key):
        return super().step(state, action, key)._replace(truncated=jnp.ones((), bool))


class HostClock(gymnasium.Env):
    """The same in Python; `length` ends episodes."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Discrete(2)
    metadata, length = {}, math.inf

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        over = self.time >= self.length
        return np.ones(1, np.float32), float(self.time), over, False, {"ended": 1.0} if over else {}


class Three(HostClock):
    length = 3


class Unlike(HostClock):
    """Of two environments, made in turn, the second ends after three steps, and the first never."""

    made = 0

    def __init__(self):
        self.length = 3 if Unlike.made % 2 else math.inf
        Unlike.made += 1


@part
class Bandit(Clock):
    """An action of 1 pays."""

    def step(self, state, action, key):
        return super().step(state, action, key)._replace(reward=action.astype(jnp.float32))


WORLDS = {"native": lambda n: VectorEnv(Clock(), n), "host": lambda n: host(HostClock, n)}
both = pytest.mark.parametrize("world", WORLDS)


def agent_for(env, **options):
    return ppax.PPO(mlp(env, (4,)), num_epochs=1, **options)


def fit(env, iterations, num_steps=4, **options):
    total = iterations * num_steps * env.num_streams
    return ppax.fit(agent_for(env), env, total, num_steps=num_steps, log=QUIET, **options)


# ---------------------------------------------------------------- what is logged


@both
def test_episodes_that_forced_resets_cut_are_logged(world):
    with WORLDS[world](2) as env:
        rows = fit(env, 4, iterations_per_env_reset=2).history
    assert [row["episodes"] for row in rows] == [0, 2, 0, 2]
    assert [row["truncations"] for row in rows] == [0, 2, 0, 2]
    for row in rows[1::2]:
        own = (row["episode_return"], row["episode_length"], row["episode_return_min"], row["episode_return_max"])
        assert own == (36.0, 8.0, 36.0, 36.0)  # 1 + 2 + ... + 8
        assert row["episode_return_std"] == 0.0
        if world == "native":
            assert row["squared"] == 64.0  # of the last step
    assert all(math.isnan(row["episode_return"]) for row in rows[::2])


def test_statistics_of_a_cut_episode_are_those_of_all_returns():
    """Oracle: NumPy, over the list of all returns of each stream."""
    rng = np.random.default_rng(0)
    returns = [rng.normal(50.0, 3.0, size) for size in (0, 1, 2, 5)]
    last, cut = rng.normal(50.0, 3.0, 4), np.array([True, True, False, True])
    episodes = Episodes(
        count=jnp.array([len(x) for x in returns]),
        return_sum=jnp.array([x.sum() for x in returns], jnp.float32),
        length_sum=jnp.array([10 * len(x) for x in returns]),
        return_squares=jnp.array([((x - x.mean()) ** 2).sum() if len(x) else 0.0 for x in returns], jnp.float32),
        return_min=jnp.array([x.min(initial=np.inf) for x in returns], jnp.float32),
        return_max=jnp.array([x.max(initial=-np.inf) for x in returns], jnp.float32),
        metrics={"won": jnp.zeros(4)},
        running_metrics={"won": jnp.ones(4)},
    )
    env = VectorEnv(Clock(), 4)
    actor = start_actor(agent_for(env), env, jax.random.key(0))
    actor = actor._replace(episode_return=jnp.asarray(last, jnp.float32), episode_length=jnp.full(4, 7))
    out = with_running(episodes, actor, jnp.asarray(cut))
    for i, (own, new, over) in enumerate(zip(returns, last, cut, strict=True)):
        every = np.append(own, new) if over else own
        assert out.count[i] == len(every)
        assert out.length_sum[i] == 10 * len(own) + 7 * over
        assert out.metrics["won"][i] == over
        np.testing.assert_allclose(out.return_sum[i], every.sum(), rtol=1e-6)
        np.testing.assert_allclose(out.return_squares[i], ((every - every.mean()) ** 2).sum(), rtol=1e-3, atol=1e-4)
        assert (out.return_min[i], out.return_max[i]) == (np.float32(every.min()), np.float32(every.max()))


def test_an_episode_that_ends_before_the_reset_and_one_that_is_cut_both_count():
    """Six steps: 1, 2, 3 end an episode, one step resets, and 1, 2 are cut."""
    (row,) = fit(VectorEnv(Counter(3), 2), 1, 6, iterations_per_env_reset=1).history
    assert (row["episodes"], row["episode_return"], row["episode_length"]) == (4, 4.5, 2.5)
    assert (row["episode_return_std"], row["episode_return_min"], row["episode_return_max"]) == (1.5, 3.0, 6.0)


def test_on_the_host_a_cut_episode_counts_as_0_in_metrics_of_info():
    """Three steps end an episode with metric 1, one resets, and two are cut, of which `info` says nothing."""
    with host(Three, 2, info_metrics=("ended",)) as env:
        (row,) = fit(env, 1, 6, iterations_per_env_reset=1).history
    assert (row["episodes"], row["ended"]) == (4, 0.5)


@both
def test_rewards_of_a_step_have_columns_of_their_own(world):
    with WORLDS[world](2) as env:
        row = fit(env, 3).history[-1]  # of the steps 9 to 12
    rewards = np.arange(9.0, 13.0)
    for name, of in {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}.items():
        assert row[f"reward_{name}"] == pytest.approx(of(rewards), rel=1e-6)


def test_rewards_of_steps_that_only_reset_are_left_out():
    (row,) = fit(VectorEnv(Counter(3), 2), 1, 4).history  # 1, 2, 3, and a reset with reward 0
    assert (row["reward_min"], row["reward_max"]) == (1.0, 3.0)
    assert row["reward_std"] == pytest.approx(np.std([1.0, 2.0, 3.0]), rel=1e-6)


# ---------------------------------------------------------------- evaluation


@both
def test_evaluations_truncate_and_count_with_any_number_of_episodes(world):
    with WORLDS[world](2) as env:
        agent = agent_for(env)
        learner = agent.init(env.observation_space, jax.random.key(0))
        out = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=5, max_steps=7)
    assert out.returns.tolist() == [28.0] * 5
    assert out.lengths.tolist() == [7] * 5
    assert not out.finished.any()
    assert (out.cut, out.unplayed, out.mean_return, out.truncated_share, out.terminated_share) == (5, 0, 28.0, 1.0, 0.0)
    assert (out.columns["eval_return"], out.scores["cut"]) == (28.0, 5)
    assert out.mean_final_reward == 7.0
    if world == "native":
        assert out.mean_metrics == {"squared": 49.0}


def test_what_a_cut_stream_leaves_is_played_after_a_reset_of_all():
    """Two environments, six episodes: three of the one that ends, one that is cut; then both play one more."""
    Unlike.made = 0
    with host(Unlike, 2, info_metrics=("ended",)) as env:
        agent = agent_for(env)
        learner = agent.init(env.observation_space, jax.random.key(0))
        out = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=6, max_steps=9)
    assert sorted(out.returns.tolist()) == [6.0] * 4 + [45.0] * 2
    assert (out.cut, out.unplayed) == (2, 0)
    assert out.mean_metrics == {"ended": 1.0}  # over those that have ended


def test_the_means_are_over_ended_and_cut_episodes():
    env = VectorEnv(Team(), 1)  # agents end after 2, 3 and 4 steps with a reward of 1 each
    agent = agent_for(env)
    learner = agent.init(env.observation_space, jax.random.key(0))
    out = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=3, max_steps=3)
    assert out.finished.tolist() == [True, True, False]
    assert (out.mean_length, out.cut) == (pytest.approx(8 / 3), 1)
    assert out.truncated_share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("env", "endless"),
    [
        (Clock(), True),
        (builtin.EndlessCartPole(), True),
        (builtin.EndlessMountainCar(), True),
        (builtin.Pendulum(), True),
        (Finite(), False),
        (TimeLimit(Clock(), 5), False),
        (ActionRepeat(TimeLimit(Clock(), 5), 2), False),
        (Counter(10**6), False),  # its flags depend on the state
        (builtin.CartPole(), False),
        (Team(), False),
    ],
    ids=lambda x: None if isinstance(x, bool) else type(x).__name__,
)
def test_a_compiled_step_shows_whether_it_can_end_an_episode(env, endless):
    assert never_ends(env) == endless


def test_groups_of_agents_are_examined_too():
    env = ppax.envs.grouped(ppax.make("Pursuit-2", 2), {"prey": [0], "hunter": [1]})
    assert not never_ends(env.env)


def test_default_lengths_of_evaluated_episodes():
    clock = VectorEnv(Clock(), 2)
    assert episode_limit(clock, ended=True) == 100_000
    assert episode_limit(clock, ended=None, period=64) == 10_000
    assert episode_limit(clock, ended=None, played=999) == 10_000
    assert episode_limit(clock, ended=None, played=1_000) == 1_000
    assert episode_limit(clock, ended=True, played=1_000) == 100_000
    assert episode_limit(clock, ended=False) == 1_000
    assert episode_limit(clock, ended=False, period=64) == 64
    assert episode_limit(VectorEnv(Few(), 2), ended=False) == 8  # its longest rollout


@pytest.mark.parametrize(
    ("episodes", "length", "ended"),
    [(0.0, math.nan, False), (2.0, 64.0, False), (None, None, False), (2.0, 63.5, True)],
    ids=["none", "forced resets", "no value", "ended"],
)
def test_a_log_row_shows_whether_an_episode_has_ended(episodes, length, ended):
    row = {"episodes": episodes, "episode_length": length}
    assert has_ended(row, period=64) == ended
    assert has_ended(row) == bool(episodes)


def test_a_short_training_does_not_show_that_episodes_never_end():
    for steps, longest in ((996, 10_000), (1_000, 1_000)):
        run = fit(VectorEnv(Counter(10**6), 2), 1, steps, evaluation=EvalSettings(episodes=2))
        assert run.evaluate().lengths.tolist() == [longest] * 2


@both
def test_a_run_evaluates_keeps_and_stops_by_evaluations(world):
    with WORLDS[world](2) as env:
        settings = EvalSettings(every=1, episodes=3, max_steps=6)
        stop = "eval_return >= 21"
        run = fit(env, 4, evaluation=settings, best=BestSettings("eval_return"), stop=stop)
        assert [row["eval_return"] for row in run.history] == [21.0]  # of the untrained policy
        assert run.stopped == "eval_return >= 21 (at 21)"
        assert run.best.row["eval_return"] == 21.0
        assert run.evaluate().lengths.tolist() == [6] * 3
        assert run.evaluate(max_steps=2).mean_return == 3.0
    assert "last reward_mean" not in repr(run)  # the untrained policy's row has no reward


def test_defaults_of_a_run_on_the_host_follow_its_training():
    with host(HostClock, 2) as env:
        run = fit(env, 4, 250, evaluation=EvalSettings(episodes=2))
        assert repr(run).count("last reward_mean 875.50") == 1  # of the steps 751 to 1,000
        assert run.evaluate().lengths.tolist() == [1_000] * 2
    with host(HostClock, 2) as env:
        run = fit(env, 2, 4, iterations_per_env_reset=1, evaluation=EvalSettings(episodes=2, max_steps=None))
        assert run.evaluate(max_steps=4).mean_return == run.history[-1]["episode_return"] == 10.0


@pytest.fixture
def lengths(monkeypatch):
    """The numbers of steps after which evaluations cut episodes, as they are evaluated; they are cut earlier here."""
    lengths, play = [], ppax.training.evaluation.Evaluator.__call__

    def played(self, learner, key, max_steps):
        lengths.append(max_steps)
        return play(self, learner, key, min(max_steps, 50))

    monkeypatch.setattr(ppax.training.evaluation.Evaluator, "__call__", played)
    return lengths


@pytest.mark.parametrize(("resets", "after"), [(None, 1_000), (1, 250)])
def test_evaluations_in_training_follow_it_as_those_after_it_do(resets, after, lengths):
    with host(HostClock, 2) as env:
        fit(env, 5, 250, iterations_per_env_reset=resets, evaluation=EvalSettings(every=1, episodes=2))
    assert lengths == [10_000] * 4 + [after] * 2  # after 0, 250, 500, 750, 1,000 and 1,250 steps


def test_a_resumed_run_knows_that_episodes_end(tmp_path, lengths):
    """Its first evaluation comes after an iteration in which none ends."""
    env = VectorEnv(Counter(6), 2)  # episodes end in the second and in the fourth iteration
    options = {"evaluation": EvalSettings(every=1, episodes=2), "run_dir": tmp_path}
    fit(env, 2, **options)
    ppax.resume(tmp_path, env=env, agent=agent_for(env), console=False, total_steps=3 * 8)
    assert lengths == [10_000, 10_000, 100_000, 100_000]


# ---------------------------------------------------------------- conditions


@pytest.mark.parametrize("metric", ["episode_return", "episode_length", "episode_return_max"])
def test_a_condition_that_can_never_have_a_value_is_refused_at_once(metric):
    env = VectorEnv(Clock(), 2, name="clock")
    for options in ({"stop": f"{metric} >= 5"}, {"best": BestSettings(metric)}):
        with pytest.raises(
            ConfigError, match=rf"clock never ends an episode, so that {metric}.*reward_mean.*TimeLimit"
        ):
            fit(env, 1, **options)
    run = fit(env, 1, iterations_per_env_reset=1, stop=f"{metric} >= 4")
    assert run.stopped


def test_a_run_stops_by_the_reward_of_a_step():
    run = fit(VectorEnv(Clock(), 2), 9, stop="reward_mean >= 10", best=BestSettings("reward_mean"))
    assert int(run.state.iteration) == 3  # 9, 10, 11, 12
    assert run.best.row["reward_mean"] == 10.5


# ---------------------------------------------------------------- sweeps


def test_members_are_ranked_by_rewards_only_where_none_has_a_return(tmp_path):
    def write(name, *rows):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"iteration": i, "env_steps": i} | row) for i, row in enumerate(rows, 1)]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        return tmp_path / name

    path = write("a", *({"episode_return": None, "reward_mean": float(i)} for i in range(8)))
    assert math.isnan(decisions.score(path, 0, 9))
    assert decisions.reward_score(path, 0, 9) == np.mean([3, 4, 5, 6, 7])
    assert decisions.reward_score(path, 0, 4) == np.mean([0, 1, 2, 3])
    assert decisions.reward_score(path, 2, 4) == 2.5
    assert math.isnan(decisions.reward_score(path, 8, 9))
    other = write("b", {"episode_return": 2.0, "reward_mean": 0.5})
    assert decisions.scores_of({3: path, 4: path}, 0, 4) == {3: 1.5, 4: 1.5}
    mixed = decisions.scores_of({3: path, 4: other}, 0, 4)
    assert mixed[4] == 2.0
    assert math.isnan(mixed[3])


@pytest.mark.usefixtures("vmapped_keys")
def test_a_search_and_its_result_rank_an_endless_environment(tmp_path):
    """The member whose learning rate is 0 keeps a reward of about a half, and the search ends it."""
    base = {"num_envs": 16, "num_steps": 16, "total_steps": 16 * 16 * 16}
    base |= {"agent": {"schedule": {"part": "constant"}, "network": {"hidden": [8]}}, "log": {"console": False}}
    base |= {"env": f"{__name__}:Bandit", "eval": {"episodes": 4, "deterministic": False, "max_steps": 10}}
    with ppax.core.imports.trusting([__name__.partition(".")[0]]):
        values = {"agent.learning_rate": [1e-12, 3e-2]}
        result = ppax.sweep_runs(base, values, search=Halving(eta=2, rungs=1), run_dir=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "search.jsonl").read_text().splitlines()]
    scores = {row["member"]: row["score"] for row in rows}
    assert scores[1] > scores[0] > 0.3
    assert [member.number for member in result.stopped] == [0]
    best = next(member for member in result.members if member.number == 1)
    assert 6.0 < best.score <= 10.0  # ten steps


# ---------------------------------------------------------------- reports and words


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "clock"
    fit(VectorEnv(Clock(), 2, name="clock"), 12, run_dir=path)
    return path


def test_reports_show_rewards_where_no_episode_ended(directory, tmp_path):
    page = ppax.report(directory, tmp_path / "page.html").read_text()
    assert "Mean reward of a step, as no episode has ended" in page
    assert "reward a step" in str(ppax.compare(directory))
    assert {saved.metric for saved in ppax.checkpoints(directory)} == {"reward_mean"}
    assert all(math.isfinite(saved.score) for saved in ppax.checkpoints(directory))
    axes = ppax.plot(directory).axes[0]
    assert axes.get_ylabel() == "reward mean"
    np.testing.assert_allclose(axes.lines[0].get_ydata()[[0, -1]], [2.5, 46.5])


def test_the_doctor_says_what_stands_for_the_return(directory):
    said = str(ppax.doctor(directory))
    assert "No episode ended; the reward of a step rose: 2.5 at the start, 46.5 at the end." in said


def test_commands_say_what_the_numbers_mean(tmp_path, capsys):
    sizes = ["--num-envs", "2", "--num-steps", "8", "--total-steps", "64", "--agent.network.hidden", "4"]
    rest = ["--eval.episodes", "3", "--eval.max-steps", "20", "--no-log.console", "--no-cache"]
    path = f"{__name__}:Clock"
    trust = ["--trust", __name__.partition(".")[0]]
    assert main.main(["train", path, *sizes, *rest, *trust, "--run-dir", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out
    assert "mean return 210.00" in said
    assert "3 had not ended after 20 steps, were cut and count as truncated" in said
    assert "no episode ended in training: its return is reward_mean, the mean reward of a step" in said
    written = json.loads((tmp_path / "a" / "evaluation.json").read_text())
    assert (written["mean_return"], written["cut"], written["episodes"]) == (210.0, 3, 3)
    assert main.main(["evaluate", str(tmp_path / "a"), "--max-steps", "4", "--no-cache", *trust]) == 0
    assert "mean return 10.00" in capsys.readouterr().out
    assert main.main(["evaluate", str(tmp_path / "a"), "--max-steps", "0", "--no-cache", *trust]) == 2
    assert "--max-steps 0: must be at least 1; nearest valid value: 1" in capsys.readouterr().err


# ---------------------------------------------------------------- limits that an environment declares


@part
class Few(Clock):
    """Takes at most three environments and rollouts of eight steps."""

    max_num_envs, max_horizon = 3, 8


class HostFew(HostClock):
    max_num_envs, max_horizon = 3, 8


@pytest.mark.parametrize("make", [lambda n: VectorEnv(TimeLimit(Few(), 6), n), lambda n: host(HostFew, n)])
def test_limits_of_an_environment_are_respected(make):
    with make(4) as env, pytest.raises(ConfigError, match=r"num_envs = 4.*at most 3.*nearest valid value: 3"):
        fit(env, 1)
    with make(2) as env:
        with pytest.raises(ConfigError, match=r"num_steps = 16.*at most 8.*its max_horizon.*nearest valid value: 8"):
            fit(env, 1, 16)
        run = fit(env, 1, 8)
        out = run.evaluate(episodes=7, max_steps=6)
        assert out.returns.tolist() == [21.0] * 7


def test_evaluations_hold_no_more_environments_than_the_limit(monkeypatch):
    sizes, reset = [], VectorEnv.reset
    monkeypatch.setattr(VectorEnv, "reset", lambda self, key: (sizes.append(self.num_envs), reset(self, key))[1])
    env = VectorEnv(Few(), 2)
    agent = agent_for(env)
    learner = agent.init(env.observation_space, jax.random.key(0))
    out = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=7)
    assert set(sizes) == {3}
    assert out.lengths.tolist() == [8] * 7  # an endless environment's default is at most its horizon


def test_sets_of_evaluated_environments_have_random_numbers_of_their_own():
    @part
    class Random(Few):
        def step(self, state, action, key):
            return super().step(state, action, key)._replace(reward=jax.random.normal(key))

    env = VectorEnv(Random(), 2)
    agent = agent_for(env)
    learner = agent.init(env.observation_space, jax.random.key(0))
    out = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=7, max_steps=4)
    assert len(np.unique(out.returns)) == 7


def test_a_limit_that_is_no_number_is_refused():
    @part
    class Odd(Clock):
        max_num_envs = 0

    with pytest.raises(ConfigError, match="max_num_envs of Odd = 0: must be a whole number of at least 1"):
        fit(VectorEnv(Odd(), 2), 1)


def test_limits_are_not_fields_of_the_environment():
    assert [field.name for field in dataclasses.fields(Few())] == []
