"""The whole self-test: what is healthy passes, user code that raises is one failed check, and the command line."""

import dataclasses
import json
from functools import partial

import jax
import pytest
from gymnasium import spaces

import ppax
from ppax.cli import main
from ppax.envs import VectorEnv, host
from ppax.networks import Tower, memories, mlp, network
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.recompute import Epoch
from ppax.training.host import operations
from support import broken
from support.host_worlds import BOX, Maze, Spaces, Trouble
from support.worlds import Leaky, Team


def run(env, network=None, num_steps=32, **options):
    network = (network or (lambda x: x))(mlp(env, hidden=(8,)))
    agent = ppax.PPO(network, **{"minibatch": Shuffle(2)} | options)
    return ppax.selftest(agent, env, num_steps, jax.random.key(0))


@pytest.mark.nightly
def test_a_recurrent_agent_with_normalisation_passes():
    env = ppax.make("Navigator-v0", 4)
    report = run(env, Leaky, 64, normalize_obs=True, normalize_reward=True, seq_len=16)
    assert report.passed, str(report)
    assert report["memory"].passed
    assert report["ratio"].number <= 1e-5
    assert {check.name for check in report.checks if check.passed is None} <= {"masks"}
    assert all(len(line) < 200 for line in str(report).splitlines())


def towers(network):
    stack = memories.Stack(memories.LSTM(6), 2, residual=True, norm=True)
    critic = Tower(hidden=(6,), activation="mish", layer_norm=True)
    return dataclasses.replace(network, actor=Tower(memory=stack), critic=critic, remat=True)


def test_an_agent_with_towers_and_a_stack_passes():
    report = run(ppax.make("CartPole-v1-masked", 4), towers, 32, seq_len=8)
    assert report.passed, str(report)
    assert report["memory"].passed
    assert report["ratio"].number <= 1e-5


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("env", "options"),
    [
        (ppax.make("Pendulum-v1", 16), {"normalize_reward": True}),
        (VectorEnv(Team(), 4), {}),
        (
            VectorEnv(broken.Shown(), 8),
            {
                "minibatch": ppax.minibatches.Prioritised(),
                "advantage": ppax.advantages.VTrace(),
                "recompute": Epoch(),
            },
        ),
    ],
)
def test_other_healthy_ones_pass(env, options):
    report = run(env, num_steps=64, **options)
    assert report.passed, str(report)


def test_code_that_raises_is_one_failed_check():
    report = run(VectorEnv(broken.Raises(), 4))
    assert not report.passed
    failed = [check.name for check in report.checks if check.passed is False]
    assert failed == ["shapes", "keys", "environment", "rollout"]
    assert "broken.py" in report["rollout"].advice
    assert "RuntimeError: the simulator is gone" in report["rollout"].advice
    assert report["ratio"].text == "not tried: there is no rollout"
    json.dumps(report.to_dict())


def test_sizes_that_do_not_divide_are_refused_at_once():
    env = ppax.make("CartPole-v1", 3)
    with pytest.raises(ppax.ConfigError, match="num_minibatches"):
        run(env, num_steps=5)


def test_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_text('env = "CartPole-v1"\nnum_envs = 4\nnum_steps = 32\nagent.network.hidden = [8]\n')
    assert main.main(["selftest", str(path), "--json", "--no-cache", "--agent.minibatch.num-minibatches", "2"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["passed"] is True
    assert {check["name"] for check in result["checks"]} >= {"ratio", "replay", "alignment", "minibatches", "devices"}
    assert "0 failed" in captured.err


def test_a_failure_has_an_exit_code_of_its_own(monkeypatch, capsys):
    bad = broken.Raises()
    monkeypatch.setitem(ppax.envs.BUILTIN, "probe/Constant", lambda: bad)
    assert main.main(["selftest", "probe/Constant", "--no-cache"]) == 1
    assert "FAIL rollout" in capsys.readouterr().out


# ---------------------------------------------------------------- on the host

NOT_HERE = {"final obs", "alignment", "devices"}


@pytest.mark.nightly
@pytest.mark.parametrize("memory", [False, True])
def test_an_agent_on_the_host_passes(memory):
    with host(Maze, 8) as env:
        options = {"memory": memories.GRU(8)} if memory else {}
        report = ppax.selftest(ppax.PPO(network(env, hidden=(8,), **options)), env, 64, jax.random.key(0))
    assert report.passed, str(report)
    assert {check.name for check in report.checks if check.passed is None} == NOT_HERE | {"masks", "episode_stats"} | (
        set() if memory else {"memory"}
    )
    assert ("NumPy" in report["on the host"].text) != memory


@pytest.mark.nightly
def test_a_host_policy_that_is_not_the_network_is_found(monkeypatch):
    tanh = operations.OPERATIONS["tanh"]
    monkeypatch.setitem(operations.OPERATIONS, "tanh", lambda params: lambda x: tanh(params)(x) - 1.0)
    with host(lambda: Spaces(BOX, spaces.Box(-1.0, 1.0, (2,))), 8) as env:
        report = ppax.selftest(ppax.PPO(network(env, hidden=(8,))), env, 64, jax.random.key(0))
    assert report["on the host"].passed is False
    assert report["ratio"].passed


def test_an_environment_that_fails_on_the_host_is_told_and_nothing_is_built_on_it():
    with host([Maze, partial(Trouble, "raise")]) as env:
        report = ppax.selftest(ppax.PPO(network(env, hidden=(8,))), env, 64, jax.random.key(0))
    assert [check.name for check in report.checks if check.passed is False] == ["interface", "rollout"]
    assert "the wheel fell off" in report["rollout"].advice
    assert {check.name for check in report.checks if "does not apply" in check.text} == NOT_HERE
    assert "not tried" in report["ratio"].text


def test_every_policy_of_groups_is_checked_on_its_own_streams():
    env = ppax.envs.grouped(ppax.make("Pursuit-3", 4), {"prey": [0], "hunters": [1, 2]})
    networks = {name: mlp(group, hidden=(8,)) for name, group in env.groups.items()}
    hunters = ppax.Independent(ppax.PPO(Leaky(networks["hunters"]), minibatch=Shuffle(2)), 2)
    agents = {"prey": ppax.PPO(networks["prey"], minibatch=Shuffle(2), seq_len=8), "hunters": hunters}
    report = ppax.selftest(ppax.Groups(agents, env.sizes), env, 16, jax.random.key(0))
    assert report.passed, str(report)
    for name in ("ratio", "replay", "targets", "gradients", "update", "minibatches"):
        assert [report[f"{name}/{one}"].passed for one in ("prey", "hunters_0", "hunters_1")] == [True] * 3
    assert report["memory/prey"].passed is None
    assert report["memory/hunters_1"].passed
    assert "with one policy, and Groups has several" in report["devices"].text


def test_self_play_is_refused_with_the_checks_that_it_lacks():
    env = ppax.envs.grouped(ppax.make("Pursuit-2", 4), {"prey": [0], "hunter": [1]})
    agents = {name: ppax.PPO(mlp(group, hidden=(8,))) for name, group in env.groups.items()}
    agent = ppax.agents.self_play.SelfPlay(ppax.Groups(agents, env.sizes), ppax.agents.self_play.Pool(every=1), 4)
    with pytest.raises(ppax.ConfigError, match=r"past selves act in some environments, so that no check .* \(ratio"):
        ppax.selftest(agent, env, 16, jax.random.key(0))
