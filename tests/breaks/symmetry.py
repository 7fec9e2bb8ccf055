"""Breaks of the symmetry loss."""

from breaks.base import Mutation

SYMMETRY = "tests/extensions/test_symmetry.py::"
MUTATIONS = [
    Mutation(
        "actions of mirrored rows are not mirrored",
        "obs=obs, action=action, action_mask=mask",
        "obs=obs, action_mask=mask",
        (SYMMETRY + "test_augmentation_is_the_loss_of_the_mirrored_rollout",),
        "extensions/symmetry.py",
    ),
    Mutation(
        "mirror images have no signs",
        "np.broadcast_to(np.sign(image), x.shape)",
        "np.broadcast_to(np.abs(np.sign(image)), x.shape)",
        (SYMMETRY + "test_a_mirror_image_by_hand",),
        "extensions/symmetry.py",
    ),
    Mutation(
        "mirrored rows have the entropy coefficient of the start",
        "                    agent=agent,\n                    batch=flat,",
        "                    agent=self,\n                    batch=flat,",
        (SYMMETRY + "test_augmentation_is_the_loss_of_the_mirrored_rollout",),
        "ppax/ppo/ppo.py",
    ),
    Mutation(
        "the loss of mirrored rows has no value loss",
        "total: Array = weighted(policy_loss, acting_weight(batch)) + agent.vf_coef * value",
        "total: Array = weighted(policy_loss, acting_weight(batch))",
        (SYMMETRY + "test_augmentation_is_the_loss_of_the_mirrored_rollout",),
        "ppo/extension.py",
    ),
    Mutation(
        "the mirror loss of choices compares the same choices",
        "np.argsort(_places(self.action)).tolist(), batch)",
        "range(len(self.action)), batch)",
        (SYMMETRY + "test_the_mirror_loss_of_choices_is_a_divergence",),
        "extensions/symmetry.py",
    ),
    Mutation(
        "a network with memory has mirrored rows",
        "if jax.tree.leaves(steps.carry):",
        "if False:",
        (SYMMETRY + "test_memories_and_importance_weights_are_refused",),
        "extensions/symmetry.py",
    ),
    Mutation(
        "actions are mirrored around 0",
        "mirror(action - centre, image) + centre",
        "mirror(action, image)",
        (SYMMETRY + "test_vectors_are_mirrored_around_the_centre_of_their_box[off centre]",),
        "extensions/symmetry.py",
    ),
    Mutation(
        "actions of beta are mirrored as those of squashed",
        "0.5 if isinstance(distribution, Beta) else 0.0",
        "0.0",
        (SYMMETRY + "test_the_mirror_loss_of_a_beta_policy_is_around_the_middle",),
        "extensions/symmetry.py",
    ),
    Mutation(
        "an image may leave the Box",
        "    if not fits.all():",
        "    if False:",
        (SYMMETRY + "test_actions_without_this_image_are_refused",),
        "extensions/symmetry.py",
    ),
]
