"""Breaks of predictions as auxiliary losses, and of the auxiliary phase."""

from breaks.base import Mutation

MODEL = "tests/prediction/test_model.py::"
TRAINING = "tests/prediction/test_in_training.py::"
PPG = "tests/phases/test_ppg.py::"
MUTATIONS = [
    Mutation(
        "the next observation is predicted across a reset in the same step",
        "known = steps.valid if steps.final_value is None else steps.valid & ~steps.ended",
        "known = steps.valid",
        (MODEL + "test_nothing_is_predicted_across_a_reset_in_the_same_step",),
        "prediction/model.py",
    ),
    Mutation(
        "the observation of the step itself is predicted",
        "jnp.concatenate([x[1:], last[None]]), steps.obs, rollout.last_obs)",
        "x, steps.obs, rollout.last_obs)",
        (MODEL + "test_the_observation_after_each_step_with_a_step_for_each_reset",),
        "prediction/model.py",
    ),
    Mutation(
        "the target of self-prediction has a gradient",
        "targets = jax.lax.stop_gradient(jax.tree.leaves(batch.again.encode(after.obs)))",
        "targets = jax.tree.leaves(batch.again.encode(after.obs))",
        (TRAINING + "test_loss_and_gradient_are_those_of_float64",),
        "prediction/self_prediction.py",
    ),
    Mutation(
        "the model of an auxiliary loss is not trained",
        "return learner._replace(params=rest, auxiliary=learner.params[NAME])",
        "return learner._replace(params=rest)",
        (TRAINING + "test_loss_and_gradient_are_those_of_float64",),
        "learning/auxiliary.py",
    ),
    Mutation(
        "the phase has no KL penalty",
        "auxiliary + self.beta_clone * divergence + value",
        "auxiliary + value",
        (PPG + "test_loss_and_gradient_are_those_of_float64",),
        "phases/ppg.py",
    ),
    Mutation(
        "the auxiliary value head reads the critic's features",
        "actor_features(policy.features)",
        'policy.features["critic"]',
        (PPG + "test_loss_and_gradient_are_those_of_float64",),
        "phases/ppg.py",
    ),
    Mutation(
        "a phase comes in every iteration",
        "due = state.iterations + 1 >= self.every",
        "due = state.iterations >= 0",
        (PPG + "test_a_phase_comes_once_in_some_iterations",),
        "phases/ppg.py",
    ),
]
