"""Breaks of predictions as auxiliary losses, and of the auxiliary phase."""

from breaks.base import Mutation

MODEL = "tests/extensions/test_prediction.py::"
TRAINING = "tests/extensions/test_predictions.py::"
PPG = "tests/extensions/test_ppg.py::"
KEPT = "tests/extensions/test_ppg_rollouts.py::"
MUTATIONS = [
    Mutation(
        "the next observation is predicted across a reset in the same step",
        "known = known & ~steps.ended",
        "known = known & True",
        (MODEL + "test_nothing_is_predicted_across_a_reset_in_the_same_step",),
        "extensions/next_observations.py",
    ),
    Mutation(
        "the observation of the step itself is predicted",
        "jnp.concatenate([x[1:], last[None]]), steps.obs, rollout.last_obs)",
        "x, steps.obs, rollout.last_obs)",
        (MODEL + "test_the_observation_after_each_step_with_a_step_for_each_reset",),
        "extensions/next_observations.py",
    ),
    Mutation(
        "the target of self-prediction has a gradient",
        "targets = jax.lax.stop_gradient(jax.tree.leaves(rows.encode(after.obs)))",
        "targets = jax.tree.leaves(rows.encode(after.obs))",
        (TRAINING + "test_loss_and_gradient_are_those_of_float64",),
        "extensions/predictions.py",
    ),
    Mutation(
        "the model of an auxiliary loss is not trained",
        "return learner._replace(params=network, extensions=states)",
        "return learner._replace(params=network)",
        (TRAINING + "test_loss_and_gradient_are_those_of_float64",),
        "ppo/extension.py",
    ),
    Mutation(
        "PopArt moves without the auxiliary value head",
        "return state._replace(head=rescaled_dense(state.head, scale, shift))",
        "return state",
        (PPG + "test_the_auxiliary_head_keeps_its_values_when_popart_moves",),
        "extensions/ppg.py",
    ),
    Mutation(
        "the auxiliary value head begins as no critic does",
        "head = head if rescale is None else rescaled_dense(head, *rescale)",
        "head = head if rescale is None else head",
        (PPG + "test_the_auxiliary_head_of_two_hot_begins_as_the_critics",),
        "extensions/ppg.py",
    ),
    Mutation(
        "the phase has no KL penalty",
        "auxiliary + self.beta_clone * divergence + value",
        "auxiliary + value",
        (PPG + "test_loss_and_gradient_are_those_of_float64",),
        "extensions/ppg.py",
    ),
    Mutation(
        "the auxiliary value head reads the critic's features",
        "actor_features(policy.features)",
        'policy.features["critic"]',
        (PPG + "test_loss_and_gradient_are_those_of_float64",),
        "extensions/ppg.py",
    ),
    Mutation(
        "a phase comes in every iteration",
        "due = learned.batch, state.iterations + 1 >= self.every",
        "due = learned.batch, state.iterations >= 0",
        (PPG + "test_a_phase_comes_once_in_some_iterations",),
        "extensions/ppg.py",
    ),
    Mutation(
        "a phase learns from its own rollout alone, though it keeps others",
        "seen = to_rows(ring) if self.grows else batch",
        "seen = batch",
        (KEPT + "test_a_phase_sees_the_last_rollouts_as_a_ring_by_hand_has_them",),
        "extensions/ppg.py",
    ),
    Mutation(
        "every rollout is kept in the same place",
        "write(all_of_them, x, number % rollouts, 0)",
        "write(all_of_them, x, 0 * number, 0)",
        (KEPT + "test_a_phase_sees_the_last_rollouts_as_a_ring_by_hand_has_them",),
        "extensions/ppg.py",
    ),
    Mutation(
        "a start makes no room for rollouts that are kept",
        "jax.tree.map(jnp.copy, allocated(agent, state))",
        "jax.tree.map(jnp.copy, state)",
        (KEPT + "test_a_start_has_room_for_the_rollouts_of_every_agent",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "minibatches of several rollouts grow with their number",
        "size = agent.minibatch.size(sequences // self.rollouts, length)",
        "size = agent.minibatch.size(sequences, length)",
        (KEPT + "test_a_run_resumed_between_two_phases_equals_an_uninterrupted_one",),
        "extensions/ppg.py",
    ),
    Mutation(
        "the policy of the phase's KL is that of the step before",
        "old = jax.lax.stop_gradient(forward_sequences(agent, learner, steps).distribution)",
        "old = jax.lax.stop_gradient(policy.distribution)",
        (PPG + "test_loss_and_gradient_are_those_of_float64",),
        "extensions/ppg.py",
    ),
    Mutation(
        "categories that are normalised are targets",
        "lambda one: isinstance(one, spaces.Box)",
        "lambda one: isinstance(one, spaces.Box | spaces.MultiBinary)",
        ("tests/extensions/test_predictions.py::test_categories_are_no_targets_with_normalised_observations_either",),
        "extensions/predictions.py",
    ),
]
