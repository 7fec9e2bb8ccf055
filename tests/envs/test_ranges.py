"""Adaptive ranges in training: a simulation in NumPy, learning and its control, records, devices and refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli import options
from ppax.core.types import EnvReset, EnvStep
from ppax.devices.layout import Program
from ppax.envs import AdaptiveRanges, TimeLimit, VectorEnv, ended, other_params, with_schedule
from ppax.ppo.schedules import Both, Linear
from ppax.run.fit import fit_run
from ppax.training.collection import collect
from ppax.training.loop import annealed_env, iteration_inputs


@ppax.part
class Band:
    """Each step's reward is 1 where x is in the band, else 0; the observation is x. Episodes of 3 steps, 5 below 0."""

    x: float = ppax.number("number that is drawn", default=0.0, low=-10.0, high=10.0)
    floor: float = ppax.number("lower end of the band", default=-1.5)
    ceiling: float = ppax.number("upper end of the band", default=2.0)
    size: int = ppax.static("size", default=1)
    num_agents = None

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.full(1, self.x, jnp.float32))

    def step(self, state, action, key):
        inside = jnp.float32((self.x >= self.floor) & (self.x <= self.ceiling))
        over = state + 1 >= jnp.where(self.x < 0, 5, 3)
        obs = jnp.full(1, self.x, jnp.float32)
        return EnvStep(state + 1, obs, inside, over, jnp.bool_(False), metrics={"inside": inside})


def band(schedule, num_envs=16, **env_params):
    return with_schedule(other_params(VectorEnv(TimeLimit(Band(), 100), num_envs), env_params), schedule)


def small(env, **settings):
    return ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), num_epochs=1, **settings)


TRAIN = jax.jit(ppax.train)
WIDE = AdaptiveRanges(("env.x",), (-3.0,), (4.0,), widen_at=2.5, narrow_at=1.0, step=0.125, episodes=6.0)


@pytest.mark.usefixtures("vmapped_keys")  # the rollout is collected twice
def test_ends_move_as_a_simulation_in_numpy_moves_them():
    env = band(WIDE, x={"low": -0.5, "high": 0.5})
    agent, total = small(env), 24
    state = ppax.start(agent, env, 16, jax.random.key(0))

    @jax.jit
    def rollout_of(state):
        key = iteration_inputs(agent, state, total).collect_key
        return collect(agent, annealed_env(env, state, total).env, state.learner, state.actor, 16, key).rollout.steps

    ends, limits = np.array([-0.5, 0.5]), np.array([-3.0, 4.0])
    first, buffers, running = ends.copy(), ([], []), np.zeros(16)
    courses = []
    for _ in range(total):
        steps = jax.device_get(rollout_of(state))
        state, metrics = TRAIN(agent, env, state, 1, total)
        seen = [float(metrics[f"env.x.{side}"]) for side in ("low", "high")]
        np.testing.assert_allclose(seen, ends, atol=1e-5)
        courses.append(seen)
        for t in range(16):
            running += np.where(steps.valid[t], steps.reward[t], 0.0)
            for stream in np.flatnonzero(steps.ended[t]):
                for end in (0, 1):
                    if steps.obs[t, stream, 0] == np.float32(seen[end]):
                        buffers[end].append(running[stream])
                running[stream] = 0.0
        for end in (0, 1):
            mean = np.mean(buffers[end]) if buffers[end] else np.nan
            np.testing.assert_allclose(metrics[f"env.x.{('low', 'high')[end]}.performance"], mean, rtol=1e-6)
            if len(buffers[end]) >= 6:
                way = 0.125 * (limits[end] - first[end])
                ends[end] += way * (mean >= 2.5) - way * (mean <= 1.0)
                ends[end] = np.clip(ends[end], *sorted((first[end], limits[end])))
                buffers[end].clear()
    low, high = np.array(courses).T
    assert low.min() == pytest.approx(-1.75, abs=0.1)  # one move beyond the band, and back
    assert high.max() == pytest.approx(2.25, abs=0.1)
    assert (np.diff(low) > 0).any()
    assert (np.diff(high) < 0).any()


def test_an_end_stops_at_its_limit_and_goes_back_no_further_than_it_began():
    rule = AdaptiveRanges(("env.x",), (-1.0,), (1.0,), widen_at=2.0, narrow_at=1.0, step=0.6, episodes=2.0)
    ranges = rule.begin(jnp.array([[0.0, 0.0]]))

    def after(ranges, low, high, count=2.0):
        full = ranges._replace(total=count * jnp.array([[low, high]]), count=jnp.full((1, 2), count))
        return rule.moved(full)

    once = after(ranges, 2.0, 0.0)
    np.testing.assert_allclose(once.ends, [[-0.6, 0.0]])
    twice = after(once, 3.0, 1.5)
    np.testing.assert_allclose(twice.ends, [[-1.0, 0.0]])
    np.testing.assert_allclose(after(twice, 1.0, 9.0).ends, [[-0.4, 0.6]])
    early = after(twice, 0.0, 9.0, count=1.0)
    np.testing.assert_allclose(early.ends, twice.ends)
    np.testing.assert_allclose(early.count, [[1.0, 1.0]])
    np.testing.assert_allclose(twice.count, [[0.0, 0.0]])
    np.testing.assert_allclose(twice.total, [[0.0, 0.0]])


@ppax.part
class Sign:
    """The reward is 1 for action 1 where x is positive and for action 0 where it is not; x may be hidden."""

    x: float = ppax.number("number that is drawn", default=0.5, low=-1.0, high=1.0)
    hidden: bool = ppax.static("whether x is no observation", default=False)
    num_agents = None

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return EnvReset(jnp.zeros(()), self._obs())

    def step(self, state, action, key):
        right = jnp.float32((action == 1) == (self.x > 0))
        return EnvStep(state, self._obs(), right, jnp.bool_(False), jnp.bool_(False))

    def _obs(self):
        return jnp.zeros(1) if self.hidden else jnp.where(self.x > 0, jnp.ones(1), -jnp.ones(1))


@pytest.mark.parametrize("hidden", [False, True])
def test_ranges_widen_for_a_policy_that_masters_them_and_for_no_other(hidden):
    rule = AdaptiveRanges(("env.x",), (-1.0,), (1.0,), widen_at=3.4, narrow_at=2.0, step=0.1, episodes=8.0)
    env = with_schedule(VectorEnv(TimeLimit(Sign(hidden=hidden), 4), 32), rule)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(8,)), learning_rate=1e-2, num_epochs=4)
    state = ppax.start(agent, env, 32, jax.random.key(0))
    state, metrics = TRAIN(agent, env, state, 60, 60)
    low, high = np.asarray(state.ranges.ends)[0]
    assert high == pytest.approx(1.0, abs=1e-6)  # action 1 is learned first, with or without x
    if hidden:
        assert low > -0.4
    else:
        assert low == pytest.approx(-1.0, abs=1e-6)
        assert float(metrics["env.x.low.performance"]) > 3.4


def test_performance_may_be_a_metric_of_the_environment():
    rule = dataclasses.replace(WIDE, metric="inside", widen_at=0.9, narrow_at=0.1)
    env = band(rule, x={"low": -0.5, "high": 0.5})
    state = ppax.start(small(env), env, 32, jax.random.key(0))
    _, metrics = TRAIN(small(env), env, state, 2, 2)
    assert float(metrics["env.x.high.performance"]) == 1.0
    assert float(metrics["env.x.high"]) > 0.5
    assert "ends/total/0" not in metrics
    assert "inside" in metrics


def test_two_devices_move_the_ends_as_one():
    env = band(WIDE, x={"low": -0.5, "high": 0.5})

    def ranges(agent):
        state = ppax.start(agent, env, 16, jax.random.key(0))
        return jax.device_get(TRAIN(agent, env, state, 4, 4).state.ranges)

    one, two = ranges(small(env)), ranges(small(env, program=Program(devices=2)))
    for x, y in zip(one, two, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
    assert one.ends[0, 1] > 0.6


def test_an_iteration_that_is_not_finite_moves_no_end():
    env = band(WIDE, x={"low": -0.5, "high": 0.5})
    agent = small(env)
    before = ppax.start(agent, env, 16, jax.random.key(0))
    broken = before.learner._replace(params=jax.tree.map(lambda x: x * jnp.nan, before.learner.params))
    after = TRAIN(agent, env, dataclasses.replace(before, learner=broken), 1, 1).state
    assert int(after.iteration) == 0
    for x, y in zip(before.ranges, after.ranges, strict=True):
        np.testing.assert_array_equal(x, y)


def test_evaluation_draws_from_the_widest_ranges():
    env = band(WIDE, num_envs=64)
    last = ended(env)
    _, obs, _ = last.reset(jax.random.key(0))
    drawn = np.asarray(obs)[:, 0]
    assert drawn.min() < -2.0
    assert drawn.max() > 3.0
    assert not np.isin(drawn, [0.0, -3.0, 4.0]).any()
    assert last.schedule is None
    one = other_params(last, {"x": 1.0})
    np.testing.assert_array_equal(one.reset(jax.random.key(0))[1], 1.0)
    other = other_params(env, {"x": 1.0, "ceiling": 3.0})  # the ranges begin at another value
    np.testing.assert_array_equal(other.reset(jax.random.key(0))[1], 1.0)
    assert other.schedule == WIDE
    assert other_params(other, {"x": 1.0}) is other


REFUSED = [
    ({"leaves": ("env.y",)}, r"unknown option 'env_params\.y'; did you mean"),
    ({"leaves": ("gamma",)}, r"schedule\.leaves: 'gamma'; must be numbers of the environment, as env\."),
    ({"leaves": ()}, r"schedule\.leaves: no number"),
    ({"leaves": ("env.size",)}, r"env_params\.size: cannot be drawn at a reset"),
    ({"low": ()}, r"schedule\.low: 0 limits for 1 numbers"),
    ({"widen_at": None}, r"schedule\.widen_at: must be given, in units of episode_return"),
    ({"narrow_at": 2.5}, r"schedule\.narrow_at = 2\.5: must be below schedule\.widen_at = 2\.5"),
    ({"step": 0.0}, r"schedule\.step = 0\.0: must be above 0"),
    ({"share": 1.5}, r"schedule\.share = 1\.5: must be at most 1"),
    (
        {"high": (0.2,)},
        r"limits of env\.x, -3 to 0\.2, must contain its first range, -0\.5 to 0\.5; nearest .* -3 to 0\.5",
    ),
    ({"high": (40.0,)}, r"env_params\.x\.high = 40\.0: must be at most 10"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_is_refused(change, message):
    with pytest.raises(ppax.ConfigError, match=message):
        band(dataclasses.replace(WIDE, **change), x={"low": -0.5, "high": 0.5})


def test_other_places_are_refused():
    env = band(WIDE)
    for agent in (small(env, schedule=WIDE), small(env, schedule=Both(Linear(), WIDE))):
        with pytest.raises(ppax.ConfigError, match=r"adaptive ranges are those of an environment's numbers"):
            ppax.fit(agent, band(Linear(("env.x",))), total_steps=64)
    with pytest.raises(ppax.ConfigError, match=r"is stepped on the host"):
        ppax.make("gymnasium/CartPole-v1", 2, schedule=WIDE)
    with pytest.raises(ppax.ConfigError, match=r"ppax\.envs\.with_schedule\(env, schedule\)"):
        ppax.start(small(env), dataclasses.replace(VectorEnv(Band(), 4), schedule=WIDE), 16, jax.random.key(0))
    env = band(dataclasses.replace(WIDE, metric="out"))
    with pytest.raises(ppax.ConfigError, match=r"schedule\.metric = 'out': .* it has episode_return, inside"):
        ppax.start(small(env), env, 16, jax.random.key(0)) and ppax.train(
            small(env), env, ppax.start(small(env), env, 16, jax.random.key(0)), 1
        )


WORDS = (
    "CartPole-v1 --schedule adaptive --schedule.leaves env.gravity env.half_length --schedule.low 5 0.25 "
    "--schedule.high 20 1 --schedule.widen-at 12 --schedule.narrow-at 5 --schedule.episodes 2 --num-envs 8 "
    "--num-steps 32 --total-steps 1024 --agent.network.hidden 4 --agent.num-epochs 1 "
    "--log.every 1 --no-log.console --eval.episodes 2"
)


def test_a_run_is_recorded_and_resumed_bit_for_bit(tmp_path, cached_programs):
    plan = options.parse_run("train", WORDS.split(), options.add_train)[1]
    built = config.build(plan)
    whole = fit_run(*built, tmp_path / "whole")
    assert whole.history[0]["env.gravity.low"] == whole.history[0]["env.gravity.high"] == pytest.approx(9.8)
    assert whole.history[-1]["env.gravity.high"] > 9.9
    again = config.read(tmp_path / "whole" / "run.toml")
    assert again["schedule"] == plan["schedule"]
    assert "objects" not in again

    def after_two(state, row):
        return row["iteration"] == 2

    fit_run(*built, tmp_path / "cut", [after_two])
    resumed = ppax.resume(tmp_path / "cut", console=False)
    assert int(resumed.state.iteration) == 4
    for x, y in zip(
        jax.tree.leaves((whole.state.learner, whole.state.ranges)),
        jax.tree.leaves((resumed.state.learner, resumed.state.ranges)),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)
    assert float(whole.state.ranges.count.sum()) > 0  # resumed in the middle of a buffer
