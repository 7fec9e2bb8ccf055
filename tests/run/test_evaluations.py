"""Evaluation during training: known means, training as without it, the same rows after a resume."""

import csv
import json
import math
import re

import jax
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import ppax
from ppax import ConfigError, EvalSettings
from ppax.agents.self_play import Pool
from ppax.cli.main import main
from ppax.config import BestSettings, Log
from ppax.envs import VectorEnv, grouped, host
from ppax.networks import memories, network
from ppax.ppo.minibatches import Shuffle
from ppax.training.loop import MEASURED, STAGES
from support.counting import HostCounting
from support.wins import AGENTS, HostTeam, HostWins, Wins, check

pytestmark = pytest.mark.usefixtures("shared_programs", "quick_programs", "vmapped_keys")

ENVS, STEPS, ITERATIONS = 4, 4, 5
LOG = Log(every=1, checkpoint_seconds=0.0, console=False)
EVERY_TWO = EvalSettings(every=2, episodes=16)
TIMES = (*MEASURED, *STAGES)


def ppo(env, **options):
    return ppax.PPO(network(env, hidden=(4,), **options), num_epochs=1, minibatch=Shuffle(1), learning_rate=0.03)


def single():
    env = VectorEnv(Wins(), ENVS)
    return ppo(env), env


def recurrent():
    env = VectorEnv(Wins(), ENVS)
    return ppo(env, memory=memories.GRU(3)), env


def shared():
    env = VectorEnv(Wins(2), ENVS)
    return ppo(env), env


def independent():
    env = VectorEnv(Wins(2), ENVS)
    return ppax.Independent(ppo(env), 2), env


def groups():
    env = grouped(VectorEnv(Wins(2), ENVS), {"agent_0": (0,), "agent_1": (1,)})
    return ppax.Groups({name: ppo(group) for name, group in env.groups.items()}, env.sizes), env


def self_play():
    agent, env = groups()
    return ppax.SelfPlay(agent, Pool(every=1, size=2, opponents=1), ENVS), env


def on_host(make, **options):
    env = host(make, ENVS, info_metrics=["win"], **options)
    return ppo(env), env


MAKE = {
    "native": single,
    "host": lambda: on_host(HostWins),
    "self-play": self_play,
    "team on the host": lambda: on_host(HostTeam),
    "memory": recurrent,
    "shared": shared,
    "independent": independent,
    "groups": groups,
    "workers": lambda: on_host(HostWins, vectorization="async", workers=2),
}
NIGHTLY = ("self-play", "team on the host", "memory", "independent", "groups", "workers")
KINDS = [pytest.param(name, marks=[pytest.mark.nightly] if name in NIGHTLY else []) for name in MAKE]


def fit(agent, env, evaluation=EVERY_TWO, iterations=ITERATIONS, **changes):
    total = iterations * STEPS * env.num_streams
    return ppax.fit(agent, env, total, num_steps=STEPS, evaluation=evaluation, **{"log": LOG} | changes)


def close(env):
    getattr(env, "close", lambda: None)()


def bits(state):
    learned = (state.learner, state.actor, jax.random.key_data(state.key))
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(learned)]


def evaluated(rows):
    """Iterations of the rows with an evaluation; all other rows have NaN in its columns."""
    for row in rows:
        assert len({math.isnan(row[name]) for name in row if name.startswith("eval_")}) == 1
    return [row["iteration"] for row in rows if not math.isnan(row["eval_return"])]


def timeless(rows):
    return [{name: str(x) for name, x in row.items() if name not in TIMES} for row in rows]


def stop_at(iteration):
    return lambda state, row: row["iteration"] >= iteration


@pytest.mark.parametrize("kind", KINDS)
def test_means_are_those_of_the_episodes_and_training_is_as_without(kind):
    agent, env = MAKE[kind]()
    run = fit(agent, env)
    close(env)
    assert [row["iteration"] for row in run.history] == list(range(ITERATIONS + 1))
    assert evaluated(run.history) == [0, 2, 4, 5]  # the untrained policy, every second one, and the last
    rows = [row for row in run.history if row["iteration"] in (0, 2, 4, 5)]
    assert len({row["eval_win"] for row in rows}) > 1  # other random numbers in each evaluation
    for row in rows:
        if env.num_agents == 1:
            check(row)
        else:
            one, other = AGENTS if kind == "team on the host" else ("agent_0", "agent_1")
            check(row, f"/{one}", 1.0)
            check(row, f"/{other}", 2.0)
            assert row["eval_return"] == pytest.approx((row[f"eval_return/{one}"] + row[f"eval_return/{other}"]) / 2)
    agent, env = MAKE[kind]()
    without = fit(agent, env, None)
    close(env)
    assert bits(without.state) == bits(run.state)
    assert not any(name.startswith("eval_") for row in without.history for name in row)
    training = [{name: x for name, x in row.items() if not name.startswith("eval_")} for row in run.history[1:]]
    assert timeless(training) == timeless(without.history)


def test_rows_end_at_multiples_of_the_interval_and_at_evaluations():
    agent, env = single()
    run = fit(agent, env, EvalSettings(every=3, episodes=2), 8, log=Log(every=4, console=False))
    assert [row["iteration"] for row in run.history] == [0, 3, 4, 6, 8]
    assert evaluated(run.history) == [0, 3, 6, 8]
    assert run.history[-1]["episodes"] > 0


def rows_of(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return timeless(rows)


def table_of(path):
    with open(path / "metrics.csv", encoding="utf-8") as file:
        return timeless(csv.DictReader(file))


@pytest.mark.parametrize("stopped", [0, 2, 3])
def test_a_resumed_run_has_the_same_rows(tmp_path, stopped):
    agent, env = single()
    whole = fit(agent, env, run_dir=tmp_path / "whole")
    fit(agent, env, run_dir=tmp_path / "parts", callbacks=[stop_at(stopped)])
    again = ppax.resume(tmp_path / "parts", agent, env, console=False)
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
    assert table_of(tmp_path / "parts") == table_of(tmp_path / "whole")
    assert len({tuple(row) for row in table_of(tmp_path / "parts")}) == 1  # the same columns
    assert bits(again.state) == bits(whole.state)


def test_evaluations_on_the_host_are_the_same_after_a_resume(tmp_path):
    def columns(path):
        return [{name: x for name, x in row.items() if name.startswith("eval_")} for row in rows_of(path)]

    for name, callbacks in (("whole", []), ("parts", [stop_at(3)])):
        agent, env = MAKE["host"]()
        with env:
            fit(agent, env, run_dir=tmp_path / name, callbacks=callbacks)
    agent, env = MAKE["host"]()
    with env:
        ppax.resume(tmp_path / "parts", agent, env, console=False)
    assert columns(tmp_path / "parts") == columns(tmp_path / "whole")


def test_stop_conditions_count_evaluations_and_not_rows():
    agent, env = single()
    once = fit(agent, env, stop="eval_length >= 2")
    assert (len(once.history), int(once.state.iteration)) == (1, 0)  # the untrained policy has it
    # 3 is never exceeded: the second and third evaluations count, those at iterations 2 and 4
    settings = EvalSettings(every=2, episodes=16)
    run = fit(agent, env, settings, 8, stop="eval_return_min stops rising for 2")
    assert run.stopped == "eval_return_min stops rising for 2 (at 3)"
    assert int(run.state.iteration) == 4


def test_a_resume_replays_the_evaluations(tmp_path):
    agent, env = single()
    stop = "eval_return_min stops rising for 2"
    fit(agent, env, run_dir=tmp_path / "run", iterations=8, stop=stop, callbacks=[stop_at(0)])
    assert int(ppax.resume(tmp_path / "run", agent, env, [stop_at(3)], console=False).state.iteration) == 3
    assert int(ppax.resume(tmp_path / "run", agent, env, console=False).state.iteration) == 4


def test_the_best_policy_is_the_one_that_was_evaluated():
    agent, env = single()
    learners = {}

    def keep(state, row):
        learners[row["iteration"]] = jax.device_get(state.learner.params)

    run = fit(agent, env, best=BestSettings("eval_return"), callbacks=[keep])
    returns = {row["iteration"]: row["eval_return"] for row in run.history if not math.isnan(row["eval_return"])}
    best = max(returns, key=returns.get)
    assert (run.best.row["iteration"], run.best.value) == (best, returns[best])
    jax.tree.map(np.testing.assert_array_equal, run.best.learner.params, learners[best])


@pytest.mark.parametrize("name", ["native", "host"])
def test_a_run_keeps_the_episodes_of_its_evaluations(name):
    """Oracle: NumPy, over the results of each episode."""
    agent, env = MAKE[name]()
    with env:
        run = fit(agent, env)
    rows = {row["iteration"]: row for row in run.history if not math.isnan(row["eval_return"])}
    assert list(run.evaluations) == list(rows) == [0, 2, 4, 5]
    for iteration, out in run.evaluations.items():
        assert out.returns.shape == out.lengths.shape == out.truncated.shape == (EVERY_TWO.episodes,)
        assert rows[iteration]["eval_return_median"] == np.median(out.returns)
        assert rows[iteration]["eval_length"] == out.lengths.mean()
        assert rows[iteration]["eval_truncated"] == out.truncated.mean()


def test_the_program_is_compiled_once():
    agent, env = single()
    traced = []
    fit(agent, env, callbacks=[lambda state, row: traced.append(Wins.traced[0]) or False])
    assert len(traced) == ITERATIONS + 1
    assert len(set(traced)) == 1


def test_environments_on_the_host_are_created_once_and_closed():
    HostWins.opened = HostWins.closed = 0
    agent, env = MAKE["host"]()
    before = HostWins.opened
    with env:
        fit(agent, env, EvalSettings(every=1, episodes=3))
        examples = HostWins.opened - before - ENVS - 3  # of checks
        assert 0 <= examples <= 2
        assert HostWins.opened - HostWins.closed == ENVS  # those of training
    assert HostWins.opened == HostWins.closed


def test_a_failure_in_an_evaluation_ends_the_run_and_a_resume_goes_on(tmp_path):
    class Fails(HostWins):
        pass

    env = host(Fails, ENVS, info_metrics=["win"])
    agent = ppo(env)

    def break_down(state, row):
        Fails.fails_after = 0 if row["iteration"] == 3 else np.inf

    with env, pytest.raises(ppax.EnvError, match="the wheel fell off"):
        fit(agent, env, EvalSettings(every=4, episodes=4), run_dir=tmp_path / "run", callbacks=[break_down])
    assert json.loads((tmp_path / "run" / "stopped.json").read_text())["kind"] == "environment"
    Fails.fails_after = np.inf
    env = host(Fails, ENVS, info_metrics=["win"])
    with env:
        assert int(ppax.resume(tmp_path / "run", agent, env, console=False).state.iteration) == ITERATIONS


def test_a_vector_environment_of_the_user_is_refused():
    env = host(SyncVectorEnv([HostCounting] * ENVS))
    with pytest.raises(ConfigError, match=r"eval\.every.*cannot be copied.*ppax\.envs\.host\(MyEnv, num_envs\)"):
        fit(ppo(env), env)
    assert len(fit(ppo(env), env, None, 1).history) == 1
    close(env)


def test_a_metric_of_evaluations_without_them_is_refused_with_the_remedy():
    agent, env = single()
    with pytest.raises(ConfigError, match=r"eval_return.*set eval\.every"):
        fit(agent, env, None, stop="eval_return >= 475")
    with pytest.raises(ConfigError, match="did you mean 'eval_win'"):
        fit(agent, env, stop="eval_wins >= 475")


@pytest.mark.parametrize("name", ["return", "eval_length"])
def test_a_metric_of_the_environment_with_the_name_of_a_column_is_refused(name):
    class Named(HostWins):
        def step(self, action):
            return (*super().step(action)[:4], {name: 1.0})

    env = host(Named, ENVS, info_metrics=[name])
    with pytest.raises(ConfigError, match=f"metric '{name}'.*rename it, for example to 'env_{name}'"):
        fit(ppo(env), env)


def test_the_command_line_and_the_run_file_set_it(tmp_path, capsys):
    sizes = ["--num-envs", 4, "--num-steps", 8, "--total-steps", 96, "--agent.network.hidden", 4, "--log.every", 2]
    options = ["--eval.every", 2, "--eval.episodes", 4, "--env-params.max_steps", 20, "--no-cache"]
    path = tmp_path / "run"
    assert main([str(x) for x in ("train", "CartPole-v1", *sizes, *options, "--run-dir", path)]) == 0
    assert "every = 2" in (path / "run.toml").read_text().partition("[eval]")[2]
    rows = rows_of(path)
    assert [row["iteration"] for row in rows] == ["0", "2", "3"]
    assert all(float(row["eval_return"]) == float(row["eval_length"]) <= 20.0 for row in rows)
    told = capsys.readouterr()
    assert re.search(r"evaluation [\d.]+  untrained policy", told.err)
    capsys.readouterr()
    assert main(["evaluate", str(path), "--episodes", "4", "--json", "--no-cache"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["min_return"] <= result["mean_return"] <= result["max_return"]
    assert result["terminated"] + result["truncated"] == pytest.approx(1.0)
    assert result["final_reward"] == 1.0
