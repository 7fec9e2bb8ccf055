"""Whoever breaks a part is told: each fault is caught by the check that is meant for it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

import ppax
from ppax.checks import environment, rollout, update
from ppax.checks.context import fast_compiled, make_context
from ppax.checks.report import attempt
from ppax.core.types import Update
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.networks import mlp
from ppax.ppo.advantages import GAE, CanonicalVTrace, MonteCarlo, TDLambda, VTrace
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.training.collection import collect
from support import broken
from support.worlds import SGD, Counter, Leaky, Masked, Team

STEPS = 12
KEY = jax.random.key(0)


def key(seed=1):
    return jax.random.key(seed)


def env_of(part, num_envs=4):
    return VectorEnv(part, num_envs)


@functools.cache
def world_of(env, network=mlp, num_steps=STEPS, **options):
    """A rollout without the update that `build` takes first."""
    env = env_of(env)
    made = network(mlp(env, hidden=(8,)))
    agent = ppax.PPO(made, **{"minibatch": Shuffle(2)} | options)
    state = fast_compiled(lambda key: ppax.start(agent, env, num_steps, key))(key())
    gather = fast_compiled(lambda *now: collect(agent, env, *now[:2], num_steps, now[2]))
    actor = gather(state.learner, state.actor, key(2)).actor
    rollout = gather(state.learner, actor, key(3)).rollout
    return make_context(agent, env, state.learner, actor, key(3), rollout)


def plain(network):
    return network


def as_part(cls, **more):
    """An MLP as another class with the same fields."""
    return lambda network: cls(**{f.name: getattr(network, f.name) for f in dataclasses.fields(network)}, **more)


def failed(check, *arguments):
    out = attempt("it", check, *arguments)
    assert out.passed is False, str(out)
    assert out.advice
    return str(out)


def healthy(check, *arguments):
    out = attempt("it", check, *arguments)
    assert out.passed is True, str(out)
    return str(out)


def absent(check, *arguments):
    out = attempt("it", check, *arguments)
    assert out.passed is None, str(out)
    return str(out)


# ---------------------------------------------------------------- environments


@pytest.mark.parametrize("part", [builtin.CartPole, Team, Masked, Counter])
def test_healthy_environments(part):
    env = env_of(part())
    for check in (environment.check_shapes, environment.check_keys, environment.check_repeats):
        healthy(check, env, key())


def test_every_start_is_another_one_where_anything_is_drawn():
    assert "16 different" in healthy(environment.check_resets, env_of(builtin.CartPole()), key())
    assert "nothing at random" in absent(environment.check_resets, env_of(Team()), key())
    assert "not from the key" in failed(environment.check_resets, env_of(broken.OwnKey()), key())


def test_a_key_that_is_used_twice():
    assert "used twice" in failed(environment.check_keys, env_of(broken.KeyTwice()), key())


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (broken.WholeNumbers(), "obs at reset is int32[2], not float32[2]"),
        (broken.ChangingState(), "state after a step.time is float32[], not int32[]"),
    ],
)
def test_shapes_and_types_that_are_not_those_declared(part, named):
    assert named in failed(environment.check_shapes, env_of(part), key())


def test_an_environment_with_a_memory_in_python():
    assert "differs" in failed(environment.check_repeats, env_of(broken.Remembering()), key())


def test_observations_outside_their_space():
    assert "obs[0] = 3 is outside [0, 2]" in failed(rollout.check_inside, world_of(broken.Outside(), plain))
    healthy(rollout.check_inside, world_of(Counter(), plain))


def test_numbers_that_are_none():
    assert "reward is not finite in" in failed(rollout.check_finite, world_of(broken.Explodes(), plain))
    healthy(rollout.check_finite, world_of(Counter(), plain))


def test_a_number_that_is_none_is_a_matter_of_the_check_for_it_alone():
    healthy(rollout.check_alignment, world_of(broken.Explodes(), plain))


def test_observations_that_grow_without_end():
    assert "grow within an episode" in failed(rollout.check_magnitude, world_of(broken.Growing(64), plain, 64))
    healthy(rollout.check_magnitude, world_of(broken.Growing(64, factor=1.05), plain, 64))
    healthy(rollout.check_magnitude, world_of(builtin.CartPole(), plain, 64))


def test_an_environment_that_resets_itself():
    assert "resets itself" in failed(rollout.check_final, world_of(broken.SelfResetting(), plain, 64))
    healthy(rollout.check_final, world_of(builtin.CartPole(), plain, 64))
    healthy(rollout.check_final, world_of(TimeLimit(builtin.Pendulum(), 5), plain, 64))
    healthy(rollout.check_final, world_of(broken.Falling(), plain))
    absent(rollout.check_final, world_of(Counter(10**6), plain))


def test_rows_in_another_order():
    world = world_of(Counter(), plain)
    healthy(rollout.check_alignment, world)
    steps = world.rollout.steps

    def tampered(**fields):
        changed = dataclasses.replace(steps, **fields)
        return failed(rollout.check_alignment, world._replace(rollout=world.rollout._replace(steps=changed)))

    assert "the next obs differs" in tampered(obs=jnp.roll(steps.obs, -1, axis=0))  # stored after the step
    assert "terminated differs" in tampered(terminated=steps.truncated, truncated=steps.terminated)
    assert "the next first differs" in tampered(first=jnp.roll(steps.first, 1, axis=0))
    assert "reward differs" in tampered(reward=jnp.roll(steps.reward, 1, axis=0))
    assert "a step after an end is still valid" in tampered(valid=jnp.ones_like(steps.valid))
    assert "the next obs differs" in tampered(obs=1.01 * steps.obs)
    rounded = dataclasses.replace(steps, obs=1.0001 * steps.obs)  # as by another program, after some steps of physics
    healthy(rollout.check_alignment, world._replace(rollout=world.rollout._replace(steps=rounded)))


# ---------------------------------------------------------------- networks and distributions


def test_a_healthy_policy():
    for world in (world_of(builtin.CartPole(), Leaky), world_of(builtin.Pendulum(), plain, compute_dtype="bfloat16")):
        healthy(rollout.check_ratio, world, key())
        healthy(rollout.check_replay, world)
        healthy(rollout.check_distribution, world, key())


def test_what_is_stored_is_what_acting_again_gives():
    world = world_of(builtin.CartPole(), Leaky)
    steps = world.rollout.steps
    for name in ("value", "log_prob", "carry"):
        spoilt = dataclasses.replace(steps, **{name: getattr(steps, name) + 1.0})
        said = failed(rollout.check_replay, world._replace(rollout=world.rollout._replace(steps=spoilt)))
        assert f"{name} is off" in said


def test_memory_that_leaks_into_the_next_episode():
    healthy(rollout.check_memory, world_of(builtin.CartPole(), Leaky))
    world = world_of(builtin.CartPole(), broken.Leaking)
    assert "Memory leaks" in failed(rollout.check_memory, world)
    absent(rollout.check_memory, world_of(builtin.CartPole(), plain))


def test_a_normalisation_with_a_memory_in_python():
    world = world_of(builtin.CartPole(), as_part(broken.Restless))
    assert "another policy than the one that acted" in failed(rollout.check_ratio, world, key())
    failed(rollout.check_replay, world)


def test_a_log_prob_of_something_else_than_the_sample():
    failed(rollout.check_distribution, world_of(builtin.CartPole(), as_part(broken.With, kind=broken.Cold)), key())
    world = world_of(builtin.Pendulum(), as_part(broken.With, kind=broken.ClippedFirst))
    assert "what chance allows" in failed(rollout.check_distribution, world, key())


def test_a_distribution_of_normalised_log_probabilities():
    def world(hot):
        head = broken.NormalisedHead(2, hot=hot)
        return world_of(builtin.CartPole(), lambda network: dataclasses.replace(network, head=head))

    assert "log_prob is the density of the samples" in healthy(rollout.check_distribution, world(1.0), key())
    assert "what chance allows" in failed(rollout.check_distribution, world(2.0), key())


def test_a_standard_deviation_of_something_else_than_the_sample():
    world = world_of(builtin.Pendulum(), as_part(broken.With, kind=broken.Narrow))
    assert "what chance allows" in failed(rollout.check_distribution, world, key())


def test_an_action_outside_its_space():
    world = world_of(builtin.Pendulum(), as_part(broken.With, kind=broken.Unclipped))
    assert "is outside [-2, 2]" in failed(rollout.check_inside, world)


def test_masks_that_are_not_obeyed():
    assert "would be off by" in healthy(rollout.check_masks, world_of(Masked(), plain))
    said = failed(rollout.check_masks, world_of(Masked(), as_part(broken.MaskBlind)))
    assert "forbidden actions were taken" in said
    assert "the same without the mask" in said
    assert "masks allow nothing at all" in healthy(rollout.check_masks, world_of(broken.Forbidding(), plain))
    absent(rollout.check_masks, world_of(Counter(), plain))


# ---------------------------------------------------------------- what learns


def test_estimators_against_float64():
    for part in (GAE(0.7), TDLambda(0.7), MonteCarlo(), VTrace(0.7, 0.8, 0.9), CanonicalVTrace(0.7, 0.8, 0.9)):
        world = world_of(Counter(), plain)
        world = world._replace(agent=dataclasses.replace(world.agent, advantage=part))
        healthy(update.check_targets, world, key())
        healthy(update.check_ends, world, key())
    absent(update.check_targets, with_advantage(broken.Immortal()), key())


def with_advantage(part):
    world = world_of(Counter(), plain)
    return world._replace(agent=dataclasses.replace(world.agent, advantage=part))


def test_an_estimator_that_is_wrong(monkeypatch):
    wrong = GAE.__call__
    monkeypatch.setattr(GAE, "__call__", lambda self, steps, next_value, *rest: wrong(self, steps, steps.value, *rest))
    failed(update.check_targets, with_advantage(GAE()), key())


def test_ends_of_the_wrong_kind():
    assert "after a termination" in failed(update.check_ends, with_advantage(broken.Immortal()), key())
    assert "truncations" in failed(update.check_ends, with_advantage(broken.CutIsDeath()), key())


def test_targets_of_large_rewards_bootstrap_too():
    """A value to which 1 is added is the same in float32 where targets are 1e9."""
    world = world_of(Counter(), plain)
    steps = world.rollout.steps
    large = dataclasses.replace(steps, reward=jnp.full_like(steps.reward, 1e9))
    world = world._replace(rollout=world.rollout._replace(steps=large))
    healthy(update.check_ends, world, key())
    cut = dataclasses.replace(world.agent, advantage=broken.CutIsDeath())
    assert "truncations" in failed(update.check_ends, world._replace(agent=cut), key())


def test_minibatches_that_do_not_cover_the_rollout():
    def world(part):
        found = world_of(Counter(), plain)
        return found._replace(agent=dataclasses.replace(found.agent, minibatch=part)), found.env, STEPS, key()

    healthy(update.check_coverage, *world(Shuffle(4)))
    healthy(update.check_coverage, *world(Shuffle(5, remainder="pad")))
    assert "by priority" in absent(update.check_coverage, *world(Prioritised(num_minibatches=4)))
    assert "the same minibatches" in failed(update.check_coverage, *world(broken.OneOrder()))
    assert "4 of 48 sequences are in no minibatch" in failed(update.check_coverage, *world(broken.Leaves(2)))
    assert "4 of 48 sequences come more than once" in failed(update.check_coverage, *world(broken.Repeats(2)))
    assert "an index is out of range" in failed(update.check_coverage, *world(broken.Newest(2, shift=1)))


def test_minibatches_of_a_subset_are_a_note_and_no_failure():
    def world(part):
        found = world_of(Counter(), plain)
        return found._replace(agent=dataclasses.replace(found.agent, minibatch=part)), found.env, STEPS, key()

    noted = absent(update.check_coverage, *world(broken.Newest(2)))
    assert "Newest need not cover a rollout: 24 of 48 sequences are in no minibatch" in noted
    assert "come more than once" in absent(update.check_coverage, *world(broken.OneOrder(twice=True)))
    assert "the same minibatches" in failed(update.check_coverage, *world(broken.OneOrder(left_out=4)))


def test_a_parameter_that_nothing_reads():
    world = world_of(builtin.CartPole(), as_part(broken.Unread))
    assert "no gradient reaches ['unread'];" in failed(update.check_gradients, world, key()).replace("\n", ";")


def test_a_loss_that_looks_at_rows_that_do_not_count():
    world = world_of(Counter(), plain, loss=broken.Unmasked(), num_epochs=1)
    assert "doubling the rows" in failed(update.check_empty_rows, world, key())


def test_an_estimator_that_multiplies_by_zero():
    world = world_of(Counter(), plain, advantage=broken.Product(), num_epochs=1)
    assert "changes" in failed(update.check_empty_rows, world, key())
    failed(update.check_ends, world, key())


def test_a_loss_that_is_no_mean():
    world = world_of(Counter(), plain, loss=broken.Summed(), num_epochs=1, optimizer=SGD(), max_grad_norm=None)
    assert "on each device alone" in failed(update.check_devices, world, STEPS, key())
    one = env_of(Counter(), 3)
    assert "halved" in absent(update.check_devices, world._replace(env=one), 4, key())


def test_an_update_that_does_not_repeat():
    world, results = world_of(Counter(), plain), iter((1.0, 2.0))

    def unequal(learner, rollout, key):
        return Update(learner._replace(params={"w": jnp.float32(next(results))}), {})

    assert "['w'] differs" in failed(update.check_repeats, world._replace(update=unequal), key())
