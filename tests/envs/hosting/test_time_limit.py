"""`env_params.max_steps`: the time limit of environments on the host that have no argument for one."""

import functools

import gymnasium
import numpy as np
import pytest

import ppax
from ppax.cli import main
from ppax.core.types import ConfigError
from ppax.envs.hosting.time_limit import takes
from ppax.run.films import film

SPACES = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32), gymnasium.spaces.Discrete(2)
MODULE = """
import gymnasium
import numpy as np

class Endless(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, leak=0.0, render_mode=None):
        self.leak, self.render_mode = leak, render_mode

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}

    def render(self):
        return np.zeros((16, 16, 3), np.uint8)


class Own(Endless):
    def __init__(self, max_steps=3):
        super().__init__()
        self.max_steps = max_steps

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return super().reset()

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps == self.max_steps, False, {}


class Inherits(Own):
    def __init__(self, other=1, **kwargs):
        super().__init__(**kwargs)


class Swallows(Endless):
    def __init__(self, other=1, **kwargs):
        super().__init__()


def makes(**kwargs):
    return Own(**kwargs)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Package `limited_envs`, which is trusted; its name."""
    (tmp_path / "limited_envs.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    ppax.trust("limited_envs")
    import limited_envs

    return limited_envs


def episode(env):
    """Return (length, terminated, truncated) of the first episode of the first environment."""
    stepper = env.host
    (first,) = stepper.reset(list(range(env.num_envs)))[:1]
    del first
    for length in range(1, 1000):
        stepper.send(0, [np.zeros(env.num_streams, np.int64)])
        step = stepper.receive(0)
        if (step.terminated | step.truncated)[0]:
            return length, bool(step.terminated[0]), bool(step.truncated[0])
    return None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Endless", (7, False, True)),
        ("Own", (7, True, False)),
        ("Inherits", (7, True, False)),
        ("makes", (7, True, False)),
        ("Swallows", (7, False, True)),
    ],
)
def test_a_class_gets_a_time_limit_unless_it_takes_max_steps_itself(module, name, expected):
    with ppax.make(f"limited_envs:{name}", 2, env_params={"max_steps": 7}) as env:
        assert episode(env) == expected
    with ppax.envs.host(getattr(module, name), 2, env_params={"max_steps": 7}) as env:
        assert episode(env) == expected


def test_a_registered_id_gets_its_limit_replaced():
    for steps in (9, 300):  # MountainCar-v0 has 200, and does not end with action 0
        with ppax.make("gymnasium/MountainCar-v0", 1, env_params={"max_steps": steps}) as env:
            assert episode(env) == (steps, False, True)
        make = functools.partial(gymnasium.make, "MountainCar-v0")
        with ppax.envs.host(make, 1, env_params={"max_steps": steps}) as env:
            assert episode(env) == (steps, False, True)


def test_environments_with_drawn_parameters_have_the_limit_in_each_episode(module):
    ranges = {"leak": {"low": 0.0, "high": 1.0}, "max_steps": 4}
    with ppax.make("limited_envs:Endless", 1, env_params=ranges) as env:
        assert episode(env) == (4, False, True)
    seen = []
    put = lambda one, numbers: seen.append((type(one).__name__, numbers["leak"]))  # noqa: E731
    with ppax.envs.host(module.Endless, 1, env_params=ranges, set_params=put) as env:
        assert episode(env) == (4, False, True)
    assert {name for name, _ in seen} == {"Endless"}  # the user's environment, not a wrapper


def test_agents_of_pettingzoo_are_truncated_together():
    from pettingzoo.utils.env import ParallelEnv

    class Pair(ParallelEnv):
        metadata = {"name": "pair"}  # noqa: RUF012
        possible_agents = ["a", "b"]  # noqa: RUF012

        def observation_space(self, agent):
            return SPACES[0]

        def action_space(self, agent):
            return SPACES[1]

        def reset(self, seed=None, options=None):
            self.agents = ["a", "b"]
            return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

        def step(self, actions):
            every = self.agents
            flags = {agent: False for agent in every}
            obs = {agent: np.zeros(1, np.float32) for agent in every}
            return obs, dict.fromkeys(every, 1.0), flags, dict(flags), {agent: {} for agent in every}

    with ppax.envs.host(Pair, 1, env_params={"max_steps": 5}) as env:
        assert episode(env) == (5, False, True)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (0, "env_params.max_steps = 0: must be at least 1"),
        (2.5, "env_params.max_steps"),
        ({"low": 2, "high": 5}, "cannot be drawn at a reset; give one number"),
    ],
)
@pytest.mark.parametrize("name", ["limited_envs:Endless", "gymnasium/MountainCar-v0"])
def test_a_limit_that_is_no_whole_number_is_refused(module, name, steps, message):
    with pytest.raises(ConfigError, match=message):
        ppax.make(name, 1, env_params={"max_steps": steps})


@pytest.mark.parametrize("name", ["limited_envs:Endless", "gymnasium/MountainCar-v0", "Pendulum-v1"])
def test_a_limit_beyond_the_counters_is_refused(module, name):
    with pytest.raises(ConfigError, match=r"max_steps = 3000000000: must be at most .*value: 2147483647$"):
        ppax.make(name, 2, env_params={"max_steps": 3_000_000_000})


def test_classes_that_hand_arguments_on_take_what_their_bases_take(module):
    assert takes(module.Inherits, "max_steps")
    assert takes(functools.partial(module.Own, 4), "max_steps")
    assert not takes(module.Swallows, "max_steps")
    assert not takes(functools.partial(gymnasium.make, "CartPole-v1"), "max_steps")
    assert not takes(dict, "max_steps")


def test_stagger_reads_the_limit(module):
    with ppax.make("limited_envs:Endless", 2, env_params={"max_steps": 40}, stagger=True) as env:
        assert env.host.spec.stagger == 40


@pytest.mark.filterwarnings("ignore:total_steps was")
def test_a_run_with_a_limit_is_trained_evaluated_filmed_and_resumed_alike(module, tmp_path, capsys):
    run = str(tmp_path / "run")
    small = ["--num-envs", "2", "--num-steps", "8", "--total-steps", "32", "--agent.network.hidden", "4"]
    small += ["--eval.episodes", "2", "--log.every", "1"]
    command = ["train", "limited_envs:Endless", "--env-params.max-steps", "6", *small, "--run-dir", run]
    assert main.main(command) == 0
    assert "mean length 6.0, 0% terminated" in capsys.readouterr().out
    assert main.main(["resume", run, "--total-steps", "64"]) == 0
    assert "mean length 6.0, 0% terminated" in capsys.readouterr().out
    assert main.main(["evaluate", run, "--episodes", "2"]) == 0
    assert "mean length 6.0, 0% terminated" in capsys.readouterr().out
    assert main.main(["evaluate", run, "--episodes", "2", "--env-params.max-steps", "9"]) == 0
    assert "mean length 9.0, 0% terminated" in capsys.readouterr().out
    made = film(run, tmp_path / "play.gif", max_steps=50)
    assert made.lengths.tolist() == [6]
    policy = ppax.load(run)
    policy.export(tmp_path / "policy.zip", formats=["numpy"])
    assert main.main(["evaluate", str(tmp_path / "policy.zip"), "--episodes", "2"]) == 0
    assert "mean length 6.0, 0% terminated" in capsys.readouterr().out
