"""PPO as a whole: first ratio 1, invalid rows change nothing, every number has an effect."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.networks import mlp
from ppax.ppo.advantages import GAE
from ppax.ppo.critics import PopArt, Regression, TwoHot
from ppax.ppo.losses import ClippedSurrogate
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.optimizers import Adam
from ppax.ppo.schedules import Constant, Cosine, Linear
from ppax.training.collection import collect, start_actor
from support.worlds import QUICK, Counter, Leaky, Masked, Team

WORLDS = {
    "discrete": lambda: VectorEnv(TimeLimit(builtin.CartPole(), 20), 6),
    # standard deviation e^1 in a box of [-2, 2]: about half of the actions are clipped
    "clipped": lambda: VectorEnv(TimeLimit(builtin.Pendulum(), 7), 6),
    "agents": lambda: VectorEnv(Team(), 4),
    "masked": lambda: VectorEnv(Masked(), 6),
}
SCHEDULES = {"constant": Constant(), "linear": Linear(), "cosine": Cosine(("learning_rate", "loss.clip_eps"))}


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


def make(world="discrete", memory=False, **options):
    env = WORLDS[world]()
    network = mlp(env, hidden=(16, 16), **({"log_std_init": 1.0} if world == "clipped" else {}))
    return ppax.PPO(Leaky(network) if memory else network, **{"learning_rate": 0.01} | options), env


start = jax.jit(ppax.start, static_argnames="num_steps")
train = jax.jit(ppax.train)
train_fast = jax.jit(ppax.train, compiler_options=QUICK)
gather = jax.jit(collect, static_argnames="num_steps")


@functools.partial(jax.jit, compiler_options=QUICK)
def update(agent, learner, rollout, key):
    return agent.update(learner, rollout, key)


# Every pair of (world, memory, normalisation, schedule) occurs
PRODUCT = [
    ("discrete", False, False, "constant"),
    ("discrete", True, True, "linear"),
    ("discrete", False, True, "cosine"),
    ("clipped", False, True, "constant"),
    ("clipped", True, False, "cosine"),
    ("clipped", False, True, "linear"),
    ("agents", False, False, "linear"),
    ("agents", True, True, "constant"),
    ("agents", True, False, "cosine"),
    ("masked", True, False, "constant"),
    ("masked", False, True, "linear"),
    ("masked", False, True, "cosine"),
]


SOME = {0, 3, 4, 7, 10}  # in every run of the suite: each world, memory, normalisation and schedule


@pytest.mark.parametrize(
    ("world", "memory", "normalize", "schedule"),
    [pytest.param(*case, marks=() if i in SOME else pytest.mark.nightly) for i, case in enumerate(PRODUCT)],
)
def test_the_ratio_is_one_before_the_first_gradient_step(world, memory, normalize, schedule):
    agent, env = make(
        world,
        memory,
        normalize_obs=normalize,
        normalize_reward=normalize,
        schedule=SCHEDULES[schedule],
        minibatch=Shuffle(2),
        seq_len=4 if memory else None,
    )
    state = start(agent, env, num_steps=8, key=jax.random.key(0))
    for _ in range(3):
        state, metrics = train(agent, env, state, 1, 10)
        # the last bit of a log-probability may depend on how many rows a matrix product has
        assert float(metrics["ratio_first_max_dev"]) <= 1e-6
        assert float(metrics["ratio_max"]) > 1.0 + 1e-4  # and then it moves: the check above is not vacuous


def test_a_stale_policy_changes_the_first_ratio():
    """The metric can fail: log-probabilities of other weights are not those of the learner."""
    agent, env = make()
    state = start(agent, env, 8, jax.random.key(0))
    rollout = gather(agent, env, state.learner, state.actor, 8, jax.random.key(1)).rollout
    other = agent.init(env.observation_space, jax.random.key(2))
    assert float(update(agent, other, rollout, jax.random.key(3)).metrics["ratio_first_max_dev"]) > 1e-4


def rollout_of(agent, env, num_steps=12):
    state = start(agent, env, num_steps, jax.random.key(0))
    # two rollouts: the second one begins in the middle of episodes
    first = gather(agent, env, state.learner, state.actor, num_steps, jax.random.key(1))
    return state.learner, gather(agent, env, state.learner, first.actor, num_steps, jax.random.key(2)).rollout


def poison(x, invalid):
    shape = invalid.shape + (1,) * (x.ndim - invalid.ndim)
    if x.dtype == bool:
        return x
    bad = jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 10**6
    return jnp.where(invalid.reshape(shape), jnp.asarray(bad, x.dtype), x)


@pytest.mark.parametrize(
    ("world", "memory", "advantage"),
    [
        ("discrete", False, "minibatch"),
        ("clipped", True, "minibatch"),
        ("agents", False, "off"),
        ("agents", True, "rollout"),
        pytest.param("clipped", False, "rollout", marks=pytest.mark.nightly),
        pytest.param("agents", False, "minibatch", marks=pytest.mark.nightly),
    ],
)
def test_rows_that_do_not_count_change_nothing_bit_for_bit(world, memory, advantage):
    options = {"normalize_advantage": advantage, "normalize_obs": not memory, "normalize_reward": True}
    critic = {"minibatch": Regression(), "rollout": TwoHot(), "off": PopArt()}[advantage]
    agent, env = make(world, memory, minibatch=Shuffle(2), seq_len=6 if memory else None, critic=critic, **options)
    learner, rollout = rollout_of(agent, env)
    steps, invalid = rollout.steps, ~rollout.steps.valid
    assert invalid.any()
    # the observation, and V of it, right after a truncation are real: they are what the truncated step leads to
    bootstrapped = jnp.concatenate([jnp.zeros_like(invalid[:1]), steps.truncated[:-1]])
    poisoned = dataclasses.replace(
        steps,
        obs=poison(steps.obs, invalid),
        action=poison(steps.action, invalid),
        log_prob=poison(steps.log_prob, invalid),
        reward=poison(steps.reward, invalid),
        value=poison(steps.value, invalid & ~bootstrapped),
    )
    clean = update(agent, learner, rollout, jax.random.key(3))
    dirty = update(agent, learner, rollout._replace(steps=poisoned), jax.random.key(3))
    assert bits(clean.learner) == bits(dirty.learner)
    same = {name for name in clean.metrics if bits(clean.metrics[name]) == bits(dirty.metrics[name])}
    assert same == set(clean.metrics)
    # and the test can fail: the same poison in one row that counts does change the outcome
    valid = jnp.zeros_like(invalid).at[tuple(np.argwhere(np.asarray(steps.valid))[0])].set(True)
    harmed = dataclasses.replace(steps, log_prob=poison(steps.log_prob, valid))
    assert bits(update(agent, learner, rollout._replace(steps=harmed), jax.random.key(3)).learner) != bits(
        clean.learner
    )


CHANGES = {
    "learning_rate": {"learning_rate": 0.02},
    "gamma": {"gamma": 0.9},
    "gae_lambda": {"advantage": GAE(0.5)},
    "clip_eps": {"loss": ClippedSurrogate(clip_eps=0.01)},
    "vf_coef": {"vf_coef": 1.0},
    "ent_coef": {"ent_coef": 0.5},
    "max_grad_norm": {"max_grad_norm": 0.01},
    "no clipping": {"max_grad_norm": None},
    "num_epochs": {"num_epochs": 1},
    "num_minibatches": {"minibatch": Shuffle(1)},
    "b1": {"optimizer": Adam(b1=0.5)},
    "b2": {"optimizer": Adam(b2=0.5)},
    "eps": {"optimizer": Adam(eps=0.1)},
    "normalize_obs": {"normalize_obs": True},
    "normalize_reward": {"normalize_reward": True},
    "normalize_advantage": {"normalize_advantage": "rollout"},
    "advantage off": {"normalize_advantage": "off"},
}


def final_params(**options):
    agent, env = make("discrete", **{"ent_coef": 0.01} | options)
    state = start(agent, env, 8, jax.random.key(0))
    return train(agent, env, state, 2).state.learner.params


@pytest.mark.nightly
def test_every_number_and_choice_changes_what_is_learned():
    reference = bits(final_params())
    assert reference == bits(final_params())
    unchanged = [name for name, options in CHANGES.items() if bits(final_params(**options)) == reference]
    assert unchanged == []


def test_learning_rate_zero_learns_nothing():
    agent, env = make(learning_rate=0.0)
    state = start(agent, env, 8, jax.random.key(0))
    assert bits(train_fast(agent, env, state, 2).state.learner.params) == bits(state.learner.params)


@pytest.mark.parametrize("world", ["discrete", pytest.param("clipped", marks=pytest.mark.nightly)])
def test_without_memory_the_sequence_length_does_not_matter(world):
    """With one minibatch the order of rows is only the order of a sum."""

    def params(seq_len):
        agent, env = make(world, minibatch=Shuffle(1), seq_len=seq_len)
        state = start(agent, env, 8, jax.random.key(0))
        return jax.tree.leaves(train_fast(agent, env, state, 2).state.learner.params)

    for one, other in zip(params(1), params(8), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_masks_are_obeyed_in_acting_and_applied_again_in_learning():
    agent, env = make("masked")
    learner, rollout = rollout_of(agent, env, 40)
    steps = rollout.steps
    allowed = jnp.take_along_axis(steps.action_mask, steps.action[..., None], axis=-1)[..., 0]
    assert bool(allowed.all())
    assert float(steps.reward.min()) >= 0.0
    # learning without the stored masks would see other probabilities
    unmasked = dataclasses.replace(steps, action_mask=jnp.ones_like(steps.action_mask))
    metrics = update(agent, learner, rollout._replace(steps=unmasked), jax.random.key(0)).metrics
    assert float(metrics["ratio_first_max_dev"]) > 0.1


def test_v_of_the_last_observation_does_not_advance_memory():
    agent, env = make("discrete", memory=True, minibatch=Shuffle(1))
    state = start(agent, env, 8, jax.random.key(0))
    first = gather(agent, env, state.learner, state.actor, 8, jax.random.key(1))
    second = gather(agent, env, state.learner, first.actor, 8, jax.random.key(2))
    # V(s_T) computed after the first rollout is V(s_0) of the second: same memory, same observation
    # (to rounding: they are two programs)
    np.testing.assert_allclose(first.rollout.last_value, second.rollout.steps.value[0], rtol=2e-6)


def test_carries_persist_over_rollouts_and_are_reset_at_an_episodes_start():
    env = VectorEnv(Counter(3), 1)
    agent = ppax.PPO(Leaky(mlp(env), leak=1.0), minibatch=Shuffle(1), seq_len=1)
    state = start(agent, env, 2, jax.random.key(0))
    actor, sums = state.actor, []
    for seed in range(4):
        out = gather(agent, env, state.learner, actor, 2, jax.random.key(seed))
        actor, sums = out.actor, [*sums, *np.asarray(out.rollout.steps.carry[:, 0, 0])]
    # times seen are 0 1 2 3 | 0 1 2 3; the carry *before* each step is the sum so far, forgotten inside the step
    assert sums == [0, 0, 1, 3, 6, 0, 1, 3]


def test_start_actor_opens_episodes():
    agent, env = make()
    actor = start_actor(agent, env, jax.random.key(0))
    assert bool(actor.first.all())
    assert float(jnp.abs(actor.episode_return).sum()) == 0.0


def test_the_program_does_not_grow_with_minibatches_and_epochs():
    """Gradient steps are a loop that is not unrolled: a hundred of them compile as fast as four."""

    def lines(minibatches, epochs):
        agent, env = make(minibatch=Shuffle(minibatches), num_epochs=epochs)
        state = jax.eval_shape(lambda: ppax.start(agent, env, 20, jax.random.key(0)))
        return jax.jit(lambda state: ppax.train(agent, env, state, 1)).lower(state).as_text().count("\n")

    assert lines(10, 10) == lines(2, 2) > 500


@pytest.mark.parametrize("distribution", ["squashed", "ball"])
def test_the_ratio_is_one_where_actions_are_saturated(distribution):
    """Before tanh, actions have a deviation of 20: nearly all are at the bound, where tanh is 1 and has no inverse."""
    env = WORLDS["clipped"]()
    agent = ppax.PPO(mlp(env, hidden=(8,), distribution=distribution, log_std_init=3.0), learning_rate=0.01)
    state = start(agent, env, num_steps=8, key=jax.random.key(0))
    rollout = gather(agent, env, state.learner, state.actor, 8, jax.random.key(1)).rollout
    assert (np.abs(rollout.steps.action) > 10.0).mean() > 0.4  # tanh(10) is 1 in float32
    metrics = update(agent, state.learner, rollout, jax.random.key(2)).metrics
    assert float(metrics["ratio_first_max_dev"]) <= 2e-5  # log-probabilities of -40 are rounded by 4e-6
    assert float(metrics["ratio_max"]) > 1.0 + 1e-4
