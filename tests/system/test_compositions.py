"""Random combinations of parts and environments: invariants of every run.

    pytest -m "nightly or not nightly" tests/system/test_compositions.py

The message of a failure has the combination's tables: a run file, except for the environment, `compositions.Rules`.
"""

import dataclasses
import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
import reference
from ppax.agents.metrics import EPISODE_METRICS
from ppax.core.types import Batch, Transition
from ppax.devices.layout import with_devices
from ppax.envs import HostEnv
from ppax.extensions import PPG, RND, KLControl, NextObservation, RewardSpreading, SelfPrediction
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.normalization import FloatPair
from ppax.run import checkpoint
from ppax.run.fit import fit_run
from ppax.training import backends
from ppax.training.collection import collect
from ppax.training.loop import MEASURED, STAGES
from support import compositions
from support.reference_cases import flat_params
from support.worlds import QUICK

NATIVE, ON_HOST = 60, 30
ALWAYS, ALWAYS_ON_HOST = (0,), (0,)  # the others are nightly
NOT_COMPARED = (*MEASURED, *STAGES)  # times and memory
MAYBE_NAN = EPISODE_METRICS  # NaN if no episode has ended
pytestmark = pytest.mark.usefixtures("cached_programs")


def numbers(count, always):
    return [pytest.param(i, marks=() if i in always else pytest.mark.nightly) for i in range(count)]


@functools.cache
def drawn(number, on_host=False):
    return compositions.draw(number, on_host)


class Killed(BaseException):
    """Exception that ends a run at once, like an uncatchable signal."""


@pytest.fixture(autouse=True)
def _forget_each_program():
    """Every program holds memory maps, whose number is limited to 65,530: hundreds of programs end in a crash."""
    yield
    jax.clear_caches()


def killer(iteration):
    def callback(state, row):
        if row["iteration"] == iteration:
            raise Killed

    return callback


@pytest.fixture
def one_program(monkeypatch):
    """Let `fit` and `resume` of the same agent and environment share one compiled program."""
    compile, kept = backends.compile, {}

    def shared(agent, env, state, stop=None):
        if (id(agent), id(env)) not in kept:
            kept[id(agent), id(env)] = compile(agent, env, state), agent, env
        return kept[id(agent), id(env)][0]

    monkeypatch.setattr(backends, "compile", shared)


def on(one, devices):
    """Return the composition for a number of devices."""
    return one._replace(agent=with_devices(one.agent, devices))


def trained(one, run_dir=None, callbacks=()):
    return fit_run(one.agent, one.env, one.run, run_dir, callbacks)


def first_program(one):
    return one.agent.learners(one.env.num_streams)[0][0].program


def rows_of(trained):
    return [{k: v for k, v in row.items() if k not in NOT_COMPARED} for row in trained.history]


def learners_of(one):
    return [learner for learner, _ in one.agent.learners(one.env.num_streams)]


def numbers_of(state):
    """Return every leaf of a state as a NumPy array."""
    keys = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x  # noqa: E731
    return [np.asarray(keys(x)) for x in jax.tree.leaves(state)]


def summed(state):
    """Return `state` with each pair of high and low word as one number in float64."""
    pair = lambda x: isinstance(x, FloatPair)  # noqa: E731
    whole = lambda x: np.float64(x.high) + np.float64(x.low) if pair(x) else x  # noqa: E731
    return jax.tree.map(whole, state, is_leaf=pair)


def check_rows(one, rows):
    """Check the invariants of every iteration."""
    for row in rows:
        for name, x in row.items():
            plain = name.partition("/")[0]
            assert np.isfinite(x) or plain in MAYBE_NAN, (name, row)
            if plain == "ratio_first_max_dev":
                size = abs(row[name.replace(plain, "entropy")])  # log-probabilities are rounded in proportion
                assert x < ratio_tolerance(one) + 1e-6 * size, (name, row)
            if plain == "reward_mean":  # the reward shows forbidden actions
                assert x > -2.0, (name, row)


def check_learner(state):
    """Assert that every number of the learner is finite."""
    for x in numbers_of(state.learner):
        assert not np.issubdtype(x.dtype, np.floating) or np.isfinite(x).all()


def ratio_tolerance(one):
    """Return the tolerance of the ratio before the first gradient step (docs/speed.md on bfloat16)."""
    return 5e-3 if any(learner.compute_dtype == "bfloat16" for learner in learners_of(one)) else 1e-5


def tolerance(one):
    """Return the tolerance between runs with another order of summation: rounding, amplified by the composition."""
    learners = learners_of(one)
    if any(learner.compute_dtype == "bfloat16" for learner in learners):
        return 2e-2
    return 2e-3 if "muon" in str(one.tables) else 2e-4


def assert_rows_close(one, first, second):
    """Compare the metrics up to the first phase; of one iteration, without phases."""
    tight = tolerance(one) < 2e-2  # not bfloat16
    for early, late in zip(rows_of(first)[: phase_after(one) or 1], rows_of(second), strict=False):
        for name, x in early.items():
            if tight:
                np.testing.assert_allclose(late[name], x, rtol=5e-3, atol=2e-4, err_msg=name)


def phase_after(one):
    """Return the number of iterations up to the first phase, None without phases.

    A phase begins where the gradient of its KL divergence is rounding, which Adam scales to 1: what follows differs.
    """
    phases = [extension for learner in learners_of(one) for extension in learner.extensions]
    return next((phase.every for phase in phases if isinstance(phase, PPG)), None)


def assert_close(one, first, second):
    if phase_after(one) is not None:
        return
    learners = (numbers_of(summed(run.state.learner)) for run in (first, second))
    for x, y in zip(*learners, strict=True):
        if np.issubdtype(x.dtype, np.floating):
            np.testing.assert_allclose(x, y, rtol=tolerance(one), atol=tolerance(one))
        else:
            np.testing.assert_array_equal(x, y)


# ---------------------------------------------------------------- on the device


@pytest.mark.usefixtures("one_program")
@pytest.mark.filterwarnings("ignore:.*each minibatch has one row")  # some draws have one
@pytest.mark.parametrize("number", numbers(NATIVE, ALWAYS))
def test_native(number, tmp_path):
    """Check ratio, finiteness and masks in every iteration, resume after a kill, and two devices."""
    one = on(drawn(number), 1)
    print(one.tables, one.rules)
    kill_at = random.Random(number).randint(1, 4)
    with pytest.raises(Killed):
        trained(one, tmp_path / "run", callbacks=[killer(kill_at)])
    resumed = ppax.resume(tmp_path / "run", one.agent, one.env, console=False)
    whole = trained(one)
    check_rows(one, rows_of(whole))
    check_learner(whole.state)
    np.testing.assert_equal(rows_of(resumed), rows_of(whole)[kill_at - 1 :])
    for x, y in zip(numbers_of(whole.state), numbers_of(resumed.state), strict=True):
        assert x.tobytes() == y.tobytes()
    if compositions.splits_over_two(one):
        two = trained(on(one, 2))
        assert len(two.state.actor.first.sharding.device_set) == 2
        check_rows(one, rows_of(two))
        assert_rows_close(one, whole, two)
        assert_close(one, whole, two)


# ---------------------------------------------------------------- one update


class Tried:
    """Return a rollout and its updates with invalid rows filled with 0 and with NaN."""

    def __init__(self, one):
        self.agent, steps, env = on(one, 1).agent, one.run.num_steps, one.env
        state_key, collect_key, self.key = jax.random.split(jax.random.key(one.number), 3)

        def play(state_key):
            state = ppax.start(self.agent, env, steps, state_key)

            def once(actor, key):
                collected = collect(self.agent, env, state.learner, actor, steps, key)
                return collected.actor, collected.rollout

            # the second rollout starts in mid-episode
            rollouts = jax.lax.scan(once, state.actor, jax.random.split(collect_key, 2))[1]
            return state.learner, jax.tree.map(lambda x: x[1], rollouts)

        # intrinsic rewards and predictions are of the observation after a step, the final one of an episode too
        trained = [learner for learner, _ in self.agent.learners(env.num_streams)]
        looking = RND, NextObservation, SelfPrediction
        final_obs = any(isinstance(extension, looking) for learner in trained for extension in learner.extensions)

        def update(learner, rollout, fill, key):
            return self.agent.update(learner, spoiled(rollout, fill, final_obs), key)

        self.learner, self.rollout = jax.jit(play, compiler_options=QUICK)(state_key)
        update = jax.jit(update, compiler_options=QUICK)
        self.plain = update(self.learner, self.rollout, 0.0, self.key)
        self.poisoned = update(self.learner, self.rollout, np.nan, jax.random.clone(self.key))


def spoiled(rollout, fill, final_obs):
    """Return the rollout with everything that learning must not use replaced by `fill`."""
    steps = rollout.steps
    unseen = ~steps.valid
    # the final observation of a truncated episode is in an invalid row
    read = steps.ended if final_obs else steps.truncated
    bootstrap = jnp.concatenate([jnp.zeros_like(unseen[:1]), read[:-1]])

    def put(x, where):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return jnp.where(where.reshape(where.shape + (1,) * (x.ndim - where.ndim)), fill, x)

    obs = steps.obs
    if all(x.shape[:2] == unseen.shape for x in jax.tree.leaves(obs)):  # one policy, or Independent
        obs = jax.tree.map(lambda x: put(x, unseen & ~bootstrap), obs)
    steps = dataclasses.replace(steps, obs=obs, reward=put(steps.reward, unseen), log_prob=put(steps.log_prob, unseen))
    return rollout._replace(steps=steps, reward_trace=put(rollout.reward_trace, unseen))


@pytest.mark.parametrize("number", numbers(NATIVE, ALWAYS))
def test_one_update(number):
    one = drawn(number)
    print(one.tables, one.rules)
    tried = Tried(one)
    steps = tried.rollout.steps
    assert np.min(steps.reward, where=np.asarray(steps.valid), initial=0.0) > -2.0  # past selves obey masks too
    for x, y in zip(numbers_of(tried.plain), numbers_of(tried.poisoned), strict=True):
        assert x.tobytes() == y.tobytes()  # invalid rows have no effect
    hyper = hyper_of(one)
    if hyper is not None:
        theirs = by_reference(one, tried, hyper)
        ours = flat_params(tried.plain.learner.params)
        moved = max(np.abs(ours[name] - x).max() for name, x in flat_params(tried.learner.params).items())
        apart = max(np.abs(ours[name] - x).max() for name, x in theirs.params.items())
        assert apart < 1e-5 + 2e-3 * moved, (apart, moved)


# ---------------------------------------------------------------- against the reference


def hyper_of(one):
    """Return the hyperparameters of the reference; None if it lacks a feature of the composition."""
    agent = one.agent
    plain = isinstance(agent, ppax.PPO) and agent.compute_dtype == "float32" and one.rules.seen in ("vector", "matrix")
    plain = plain and isinstance(agent.minibatch, ppax.minibatches.Shuffle)
    if not plain or not isinstance(agent.optimizer, ppax.optimizers.Adam) or isinstance(agent.loss, NoPolicyLoss):
        return None
    net = agent.network
    extensions = {type(extension): extension for extension in agent.extensions}
    known = (
        set(extensions) <= {KLControl, RewardSpreading}
        and isinstance(net.memory, ppax.networks.memories.NoMemory)
        and net.activation == "tanh"
        and not net.head_hidden
        and not net.layer_norm
        and net.actor == net.critic == ppax.networks.Tower()
        and not net.state_std
        and net.std_min is None
        and net.std_max is None
        and net.distribution == "normal"
        and one.rules.action in ("two", "box", "half")
    )
    advantages = {
        ppax.ppo.advantages.GAE: lambda a: {"gae_lambda": a.gae_lambda},
        ppax.ppo.advantages.VTrace: lambda a: {"gae_lambda": a.gae_lambda, "rho_clip": a.rho_clip, "c_clip": a.c_clip},
    }
    if not known or type(agent.advantage) not in advantages:
        return None
    kl = extensions.get(KLControl, KLControl())
    return reference.Hyper(
        gamma=agent.gamma,
        learning_rate=agent.learning_rate,
        max_grad_norm=np.inf if agent.max_grad_norm is None else agent.max_grad_norm,
        seq_len=agent.sequence_length(one.run.num_steps),
        normalize_obs=agent.normalize_obs,
        normalize_reward=agent.normalize_reward,
        normalize_advantage=agent.normalize_advantage,
        reward_spread_decay=extensions[RewardSpreading].decay if RewardSpreading in extensions else 0.0,
        recompute=type(agent.recompute).__name__.lower(),
        adam_eps=agent.optimizer.eps,
        target_kl=np.inf if kl.target_kl is None else kl.target_kl,
        rate_target=kl.rate_target,
        coef_target=kl.coef_target,
        **advantages[type(agent.advantage)](agent.advantage),
        vf_coef=agent.vf_coef,
        ent_coef=agent.ent_coef,
        **loss_of(agent.loss),
        **critic_of(agent.critic),
    )


def loss_of(loss):
    if isinstance(loss, ppax.losses.KLPenalty):
        return {"objective": "kl", "kl_coef": loss.kl_coef}
    if isinstance(loss, ppax.losses.DPO):
        return {"objective": "dpo", "alpha": loss.alpha, "beta": loss.beta}
    if isinstance(loss, ppax.losses.SPO):
        return {"objective": "spo", "clip_eps": loss.clip_eps}
    if isinstance(loss, ppax.losses.Rollback):
        return {"objective": "rollback", "clip_eps": loss.clip_eps, "slope": loss.slope}
    return {"clip_eps": loss.clip_eps, "dual_clip": np.inf if loss.dual_clip is None else loss.dual_clip}


def critic_of(critic):
    if isinstance(critic, ppax.critics.Quantile):
        return {"critic": "quantile", "kappa": critic.kappa}
    if isinstance(critic, ppax.critics.TwoHot):
        return {"critic": "two_hot", "bins": tuple(np.asarray(critic.bins(), np.float64))}
    clips = {"value_clip": critic.value_clip, "huber_delta": critic.huber_delta}
    clips = {name: np.inf if x is None else x for name, x in clips.items()}
    return clips | ({"critic": "popart", "rate": critic.rate} if isinstance(critic, ppax.critics.PopArt) else {})


def by_reference(one, tried, hyper):
    """Compute the same update with the reference learner."""
    agent, steps = one.agent, tried.rollout.steps
    double = lambda x: None if x is None else np.asarray(x, np.float64 if x.dtype == np.float32 else None)  # noqa: E731
    action = np.asarray(steps.action)
    names = ("log_prob", "value", "reward", "terminated", "truncated", "valid", "action_mask")
    rollout = reference.Rollout(
        double(steps.obs),
        double(action),
        *(double(getattr(steps, name)) for name in names),
        double(tried.rollout.last_value),
        double(tried.rollout.reward_trace),
    )
    shape = (rollout.valid.size // hyper.seq_len, hyper.seq_len)
    order = np.asarray(rollout.valid).T.reshape(shape)
    batch = Batch(Transition(*[None] * 8, valid=jnp.asarray(order), carry=()), None)
    index = [
        agent.minibatch(batch, key).index for key in jax.random.split(jax.random.clone(tried.key), agent.num_epochs)
    ]
    start = flat_params(tried.learner.params)
    indices = [[[m for m in minibatch if m < len(order)] for minibatch in epoch] for epoch in np.asarray(index)]
    return reference.update(start, reference.init(start, rollout.obs.shape[2:]), rollout, hyper, indices)


# ---------------------------------------------------------------- on the host


@pytest.mark.usefixtures("one_program")
@pytest.mark.filterwarnings("ignore:.*each minibatch has one row")  # some draws have one
@pytest.mark.parametrize("number", numbers(ON_HOST, ALWAYS_ON_HOST))
def test_on_the_host(number, tmp_path):
    """As on the device; a resumed run starts new episodes with the learner, keys and counters of its checkpoint."""
    one = on(drawn(number, True), 1)
    assert isinstance(one.env, HostEnv)
    print(one.tables, one.rules)
    kill_at = random.Random(number).randint(2, 4)
    # JAX's checker of reused keys refuses slices of batched keys, as of players in a phase
    with one.env, jax.debug_key_reuse(one.tables["agents"] != "independent"):
        with pytest.raises(Killed):
            trained(one, tmp_path / "run", callbacks=[killer(kill_at)])
        path, _ = checkpoint.newest_valid(tmp_path / "run" / "checkpoints")
        assert int(path.name) == kill_at - 1
        resumed = ppax.resume(tmp_path / "run", one.agent, one.env, console=False)
        assert [row["iteration"] for row in resumed.history] == list(range(kill_at, 5))
        whole = trained(one)
        for run in (whole, resumed):
            check_rows(one, rows_of(run))
            check_learner(run.state)
        again = trained(one)
        for x, y in zip(numbers_of(whole.state.learner), numbers_of(again.state.learner), strict=True):
            assert x.tobytes() == y.tobytes()
        if compositions.splits_over_two(one):
            two = trained(on(one, 2))
            check_rows(one, rows_of(two))
            assert_rows_close(one, whole, two)
            assert_close(one, whole, two)
