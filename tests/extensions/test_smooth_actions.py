"""Smooth actions: losses and metrics against NumPy, memories, ends of episodes, accumulation, refusals, run files."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli.options import add_train, parse_run
from ppax.core.types import ConfigError, EnvReset, EnvStep, part, static
from ppax.devices.layout import Program
from ppax.distributions import Normal
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.extensions import CAPS, L2C2, ActionRate
from ppax.extensions.next_observations import following_in_episode
from ppax.extensions.smooth_actions import half_widths, mean_action, on_the_way
from ppax.networks import network
from ppax.networks.heads import head_for
from ppax.networks.memories import GRU
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.normalization import update_obs_stats
from ppax.training.collection import collect
from support.worlds import QUICK, SGD

SHORT = VectorEnv(TimeLimit(builtin.Pendulum(), 5), 3)  # episodes end in each rollout of 8 steps
HALF = 2.0  # half width of Pendulum's Box
WHOLE = {"optimizer": SGD(), "max_grad_norm": None, "learning_rate": 1.0, "num_epochs": 1, "minibatch": Shuffle(1)}


def gathered(env, num_steps, hidden=(5,), memory=None, **options):
    """Agent of plain gradient descent with rate 1, its learner with weights that are not small, and a rollout."""
    net = network(env, hidden=hidden, **({} if memory is None else {"memory": memory}))
    agent = ppax.PPO(net, **(WHOLE | options))
    state = ppax.start(agent, env, num_steps, jax.random.key(0))
    moved = jax.tree.map(lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size) + 1.0).reshape(x.shape), state.learner.params)
    learner = state.learner._replace(params=moved)
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    return agent, learner, gather(agent, env, learner, state.actor, num_steps, jax.random.key(1)).rollout


def updated(agent, learner, rollout):
    return jax.jit(agent.update, compiler_options=QUICK)(learner, rollout, jax.random.key(2))


def double(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def mean_of(params, obs):
    """Mean action of the policy with one hidden layer of tanh, or none."""
    x = obs
    if "actor" in params and "0" in params["actor"]:
        tower = params["actor"]["0"]
        x = np.tanh(x @ tower["kernel"] + tower["bias"])
    return x @ params["policy"]["kernel"] + params["policy"]["bias"]


def next_obs(rollout):
    """Observation after each step, [T, B, n]; of an episode's last step it is the row of the reset."""
    return np.concatenate([rollout.steps.obs, rollout.last_obs[None]]).astype(np.float64)[1:]


def slopes(value, params):
    """Gradient of `value(params)` by central differences."""
    leaves, structure = jax.tree.flatten(params)
    found = [np.zeros_like(x) for x in leaves]
    for i, leaf in enumerate(leaves):
        for place in np.ndindex(leaf.shape):
            ends = []
            for change in (1e-5, -1e-5):
                moved = [x.copy() for x in leaves]
                moved[i][place] += change
                ends.append(value(jax.tree.unflatten(structure, moved)))
            found[i][place] = (ends[0] - ends[1]) / 2e-5
    return jax.tree.unflatten(structure, found)


def test_the_temporal_loss_and_its_gradient_are_those_of_float64():
    """The gradient passes through both mean actions; the final observation of an episode is the last next one."""
    agent, learner, rollout = gathered(SHORT, 8, extensions=(CAPS(0.7, None),))
    steps, valid = rollout.steps, np.asarray(rollout.steps.valid)
    assert steps.truncated.any()
    assert not valid.all()
    obs, after = np.asarray(steps.obs, np.float64), next_obs(rollout)

    def value(params):
        change = (mean_of(params, after) - mean_of(params, obs)) / HALF
        return 0.7 * np.abs(change[..., 0])[valid].mean()

    update = updated(agent, learner, rollout)
    params = double(learner.params)
    assert value(params) > 0.01
    np.testing.assert_allclose(update.metrics["caps_temporal_loss"], value(params), rtol=1e-4)
    assert "caps_spatial_loss" not in update.metrics
    plain = dataclasses.replace(agent, extensions=())
    moments = plain.init(SHORT.observation_space, jax.random.key(0)).opt_state
    without = updated(plain, learner._replace(extensions={}, opt_state=moments), rollout).learner.params
    change = jax.tree.map(lambda a, b: np.asarray(a, np.float64) - b, without, update.learner.params)
    wanted = slopes(value, params)
    assert max(np.abs(x).max() for x in jax.tree.leaves(wanted)) > 0.05
    for one, other in zip(jax.tree.leaves(change), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)


@pytest.mark.parametrize("normalize_obs", [False, True])
def test_the_spatial_loss_of_a_linear_policy(normalize_obs):
    """The change of a linear policy is normal with deviation |w| std, and its mean size |w| std sqrt(2 / pi).

    Where observations are standardised, the noise is on the standardised ones.
    """
    env = VectorEnv(TimeLimit(builtin.Pendulum(), 50), 32)
    extension = CAPS(None, 1.0, noise_std=0.2)
    agent, learner, rollout = gathered(env, 64, (), extensions=(extension,), normalize_obs=normalize_obs)
    if normalize_obs:  # those of a new learner change nothing
        stats = update_obs_stats(learner.obs_stats, 3.0 * rollout.steps.obs, rollout.steps.valid)
        learner = learner._replace(obs_stats=stats)
    loss = updated(agent, learner, rollout).metrics["caps_spatial_loss"]
    weights = np.linalg.norm(np.asarray(learner.params["policy"]["kernel"])[:, 0])
    np.testing.assert_allclose(loss, 0.2 * weights / HALF * np.sqrt(2 / np.pi), rtol=0.05)


def test_l2c2_of_a_linear_policy_and_a_linear_critic():
    """E u^2 of a uniform u in [-1, 1] is 1 / 3, so the mean loss is a third of that at the next observation."""
    env = VectorEnv(TimeLimit(builtin.Pendulum(), 50), 32)
    agent, learner, rollout = gathered(env, 64, (), extensions=(L2C2(0.6, 0.3),))
    metrics = updated(agent, learner, rollout).metrics
    step = next_obs(rollout) - rollout.steps.obs
    valid = np.asarray(rollout.steps.valid)
    for name, head, scale in (("policy", "policy", 0.6 / HALF**2), ("value", "value", 0.3)):
        change = step @ np.asarray(learner.params[head]["kernel"], np.float64)
        np.testing.assert_allclose(metrics[f"l2c2_{name}_loss"], scale * (change**2)[valid].mean() / 3, rtol=0.1)


def test_a_place_on_the_way_by_hand():
    obs = {"x": jnp.array([[1.0, 2.0], [3.0, 5.0]]), "kind": jnp.array([1, 2])}
    after = {"x": jnp.array([[3.0, 2.0], [3.0, 1.0]]), "kind": jnp.array([7, 8])}
    between = on_the_way(obs, after, jnp.array([0.5, -1.0]))
    np.testing.assert_allclose(between["x"], [[2.0, 2.0], [3.0, 9.0]])
    np.testing.assert_array_equal(between["kind"], [1, 2])


def test_l2c2_is_0_where_the_next_observation_is_not_known():
    """Each row of a rollout is the last of its episode, in an environment that resets in the same step."""
    agent, learner, rollout = gathered(SHORT, 8, extensions=(L2C2(1.0, 1.0), CAPS(1.0, None)))
    ones = jnp.ones_like(rollout.steps.valid)
    cut = dataclasses.replace(rollout.steps, truncated=ones, valid=ones, final_value=rollout.steps.value)
    metrics = updated(agent, learner, rollout._replace(steps=cut)).metrics
    names = ("l2c2_policy_loss", "l2c2_value_loss", "caps_temporal_loss")
    assert [float(metrics[name]) for name in names] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("length", [4, 8])
def test_with_a_memory_the_next_mean_action_remembers(length):
    """Means of a policy that is run step by step over the rollout; the last one of a sequence has no next one."""
    agent, learner, rollout = gathered(SHORT, 8, memory=GRU(4), extensions=(CAPS(1.0, None),), seq_len=length)
    steps, carry, means = rollout.steps, agent.initial_carry(3), []
    for t in range(8):
        policy = agent.policy(learner, carry, steps.obs[t], steps.first[t], None)
        means.append(np.asarray(policy.distribution.mean)[:, 0])
        carry = policy.carry
    total, count = 0.0, 0
    for b in range(3):
        for t in range(8):
            count += bool(steps.valid[t, b])
            inside = t + 1 < 8 and (t + 1) % length and not steps.truncated[t, b]
            if inside and steps.valid[t, b] and steps.valid[t + 1, b]:
                total += abs(means[t + 1][b] - means[t][b]) / HALF
    assert total > 0.1
    loss = updated(agent, learner, rollout).metrics["caps_temporal_loss"]
    np.testing.assert_allclose(loss, total / count, rtol=1e-4)


def test_action_rates_by_a_loop():
    """Actions as the environment gets them, clipped to its Box; no pair or triple goes over the end of an episode."""
    agent, learner, rollout = gathered(SHORT, 8, extensions=(ActionRate(),), learning_rate=0.0)
    steps, metrics = rollout.steps, updated(agent, learner, rollout).metrics
    params = double(learner.params)
    for prefix, action in (("", steps.action), ("noiseless_", mean_of(params, np.asarray(steps.obs, np.float64)))):
        got = np.clip(np.asarray(action, np.float64), -2.0, 2.0)[..., 0]
        rates, jerks = [], []
        for b in range(3):
            run = []  # actions of the running episode
            for t in range(8):
                if not steps.valid[t, b]:
                    run = []
                    continue
                run.append(got[t, b])
                if len(run) > 1:
                    rates.append(abs(run[-1] - run[-2]))
                if len(run) > 2:
                    jerks.append(abs(run[-1] - 2 * run[-2] + run[-3]))
        assert len(rates) == 15
        assert len(jerks) == 9
        np.testing.assert_allclose(metrics[f"{prefix}action_rate"], np.mean(rates), rtol=1e-5)
        np.testing.assert_allclose(metrics[f"{prefix}action_jerk"], np.mean(jerks), rtol=1e-5)
    assert np.abs(np.asarray(steps.action)).max() > 2.0  # one is clipped


def test_rates_of_the_mean_actions_do_not_depend_on_chunks():
    agent, learner, rollout = gathered(SHORT, 8, memory=GRU(4), extensions=(ActionRate(),), seq_len=4)
    whole, chunks = (
        updated(dataclasses.replace(agent, program=Program(1, rows)), learner, rollout).metrics for rows in (10**6, 4)
    )
    for name in ("action_rate", "noiseless_action_rate", "noiseless_action_jerk"):
        np.testing.assert_allclose(whole[name], chunks[name], rtol=1e-5)


@pytest.mark.parametrize("memory", [None, GRU(4)], ids=["feedforward", "memory"])
def test_gradient_accumulation_does_not_change_it(memory):
    """A row has the same noise, however rows are split over chunks; with it the noise of each epoch."""
    both = {"extensions": (CAPS(0.5, 0.5), L2C2(0.5, 0.5)), "minibatch": Shuffle(2), "num_epochs": 2}
    own = {"seq_len": 4, "learning_rate": 0.1} | ({} if memory is None else {"memory": memory})
    agent, learner, rollout = gathered(SHORT, 8, **both, **own)
    whole, chunks = (
        updated(dataclasses.replace(agent, program=Program(1, rows)), learner, rollout) for rows in (10**6, 4)
    )
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(chunks), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5, rtol=1e-4)


def test_mean_actions_are_in_half_widths_of_the_box():
    """A normal mean outside of the Box is not clipped; an element without two bounds has its own unit."""
    low, high = np.array([-2.0, 0.0, -np.inf, -np.inf], np.float32), np.array([2.0, 8.0, 1.0, np.inf], np.float32)
    distribution = Normal(jnp.array([[6.0, 2.0, 5.0, -3.0]]), jnp.zeros((1, 4)), tuple(low), tuple(high), (4,))
    np.testing.assert_allclose(mean_action(distribution), [[3.0, 0.5, 5.0, -3.0]])
    np.testing.assert_allclose(half_widths(object(), 2), [1.0, 1.0])
    for name in ("squashed", "beta"):
        head = head_for(spaces.Box(-3.0, 5.0, (2,)), name)
        made = jax.vmap(lambda x, head=head: head(x, jnp.zeros(head.log_std_size), None))(jnp.ones((1, head.size)))
        np.testing.assert_allclose(mean_action(made), made.env_action(made.mode()) / 4.0, rtol=1e-6)


def test_a_loss_that_is_off_is_not_in_the_program():
    """Without coefficients no forward pass is added; a coefficient of 0 stays a number that can be swept."""
    agent, learner, rollout = gathered(SHORT, 8, extensions=(CAPS(None, None),))
    plain = dataclasses.replace(agent, extensions=())
    moments = plain.init(SHORT.observation_space, jax.random.key(0)).opt_state
    bare = learner._replace(extensions={}, opt_state=moments)

    def dots(agent, learner):
        return str(jax.make_jaxpr(agent.update)(learner, rollout, jax.random.key(2))).count("dot_general")

    assert dots(agent, learner) == dots(plain, bare)
    rated = dataclasses.replace(agent, extensions=(CAPS(0.0, None),))
    assert dots(rated, learner) > dots(plain, bare)


@pytest.mark.parametrize("extension", [CAPS(), L2C2(), ActionRate()], ids=lambda x: type(x).__name__)
def test_choices_are_refused(extension):
    env = ppax.make("CartPole-v1", 4)
    said = "is for continuous actions of one Box, not for those of a Categorical; leave the extension out"
    with pytest.raises(ConfigError, match=said):
        ppax.start(ppax.PPO(network(env), extensions=(extension,)), env, 8, jax.random.key(0))


@part
class Bytes:
    """Environment whose observations are bytes."""

    kind: str = static(default="uint8")
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_agents = None

    @property
    def observation_space(self):
        return spaces.Box(0, 255, (3,), np.uint8)

    def reset(self, key):
        return EnvReset(jnp.zeros(()), jnp.zeros(3, jnp.uint8))

    def step(self, state, action, key):
        over = jnp.zeros((), bool)
        return EnvStep(state, jnp.zeros(3, jnp.uint8), jnp.zeros(()), over, over)


def test_observations_without_floats_are_refused():
    env = VectorEnv(Bytes(), 2)
    for extension, remedy in ((CAPS(), r"set caps\.spatial_coef to none"), (L2C2(), "leave the extension out")):
        with pytest.raises(ConfigError, match=f"floating-point numbers of observations by a little, .*; {remedy}"):
            ppax.start(ppax.PPO(network(env), extensions=(extension,)), env, 8, jax.random.key(0))
    ppax.start(ppax.PPO(network(env), extensions=(CAPS(spatial_coef=None),)), env, 8, jax.random.key(0))


def test_rollouts_of_two_steps_have_no_jerk():
    agent = ppax.PPO(network(SHORT), extensions=(ActionRate(),), minibatch=Shuffle(1))
    state = ppax.start(agent, SHORT, 2, jax.random.key(0))
    with pytest.raises(ConfigError, match="num_steps = 2 has no three actions in a row; nearest valid value: 3"):
        jax.eval_shape(ppax.train, agent, SHORT, state, 1)


def test_run_files_and_command_lines():
    tables = {"caps": {"temporal_coef": 0.5, "spatial_coef": "none"}, "l2c2": {"value_coef": 0.1}, "action_rate": {}}
    agent = config.build({"env": "Pendulum-v1", "num_envs": 2, "agent": {"extensions": tables}}).agent
    assert agent.extensions == (CAPS(0.5, None), L2C2(value_coef=0.1), ActionRate())
    assert list(config.describe(agent)["extensions"]) == ["caps", "l2c2", "action_rate"]
    line = ["Pendulum-v1", "--agent.extensions.caps.noise-std", "0.2", "--agent.extensions.l2c2.policy-coef", "2"]
    built = config.build(parse_run("train", line, add_train)[1]).agent
    assert built.extensions == (CAPS(noise_std=0.2), L2C2(2.0))
    wrong = {"caps": {"temporal_coef": -1.0}}
    with pytest.raises(ConfigError, match=r"caps\.temporal_coef = -1\.0: must be at least 0; nearest valid value: 0"):
        config.build({"env": "Pendulum-v1", "agent": {"extensions": wrong}})


def test_the_next_observation_of_the_oracle_is_that_of_the_rollout():
    """The oracle's shift by one row and `following_in_episode` agree in valid rows."""
    _, _, rollout = gathered(SHORT, 8)
    after = following_in_episode(rollout)
    np.testing.assert_array_equal(after.known, rollout.steps.valid)
    known = np.asarray(after.known)
    np.testing.assert_array_equal(np.asarray(after.obs)[known], next_obs(rollout).astype(np.float32)[known])


def test_environments_on_the_host_have_these_losses(tmp_path):
    """Each iteration of a host environment that resets in the next step has losses and rates, and goes on."""
    extensions = {"caps": {}, "l2c2": {"value_coef": 0.1}, "action_rate": {}}
    options = {"num_envs": 2, "num_steps": 8, "agent": {"extensions": extensions, "minibatch": {"num_minibatches": 2}}}
    options["agent"]["schedule"] = {"part": "constant"}
    run = ppax.build("gymnasium/Pendulum-v1", total_steps=32, **options).fit(tmp_path / "run")
    more = ppax.resume(tmp_path / "run", total_steps=48, console=False)
    for row in (run.history[-1], more.history[-1]):
        assert 0.0 < row["noiseless_action_rate"] < row["action_rate"] < row["action_jerk"]
        assert min(row[f"caps_{kind}_loss"] for kind in ("temporal", "spatial")) > 0.0
        assert min(row[f"l2c2_{kind}_loss"] for kind in ("policy", "value")) > 0.0
    assert more.history[-1]["iteration"] == 3


def test_each_group_has_its_own():
    tables = {"prey": {"caps": {}, "action_rate": {}}, "hunter": {"l2c2": {}}}
    places = {"prey": [0], "hunter": [1]}
    groups = {name: {"players": places[name], "agent": {"extensions": own}} for name, own in tables.items()}
    small = {"num_epochs": 1, "minibatch": {"num_minibatches": 1}, "network": {"hidden": [4]}}
    agent, env, _ = config.build({"env": "Pursuit-2", "num_envs": 4, "groups": groups, "agent": small})
    state = ppax.start(agent, env, 8, jax.random.key(0))
    metrics = jax.jit(ppax.train, static_argnums=3, compiler_options=QUICK)(agent, env, state, 1).metrics
    found = {name for name in metrics if name.startswith(("caps", "l2c2", "action"))}
    assert found == {
        *("caps_temporal_loss/prey", "caps_spatial_loss/prey", "l2c2_policy_loss/hunter"),
        *("action_rate/prey", "action_jerk/prey"),
    }
