"""Breaks of distillation and behaviour cloning."""

from breaks.base import Mutation

DISTILLATION = "tests/imitation/test_distillation.py::"
CLONING = "tests/imitation/test_cloning.py::"
DEMONSTRATIONS = "tests/imitation/test_demonstrations.py::"
MUTATIONS = [
    Mutation(
        "the divergence of distillation is turned around",
        "divergence = wanted.kl(own)",
        "divergence = own.kl(wanted)",
        (DISTILLATION + "test_value_and_gradient_are_those_of_the_divergence",),
        "imitation/distillation.py",
    ),
    Mutation(
        "another teacher goes on with a run",
        "if found != recorded:",
        "if False:",
        (DISTILLATION + "test_a_run_file_names_its_teacher_and_a_resume_reads_it_again",),
        "imitation/teachers.py",
    ),
    Mutation(
        "other demonstrations go on with a run",
        "if self._loaded.checksum != self.checksum:",
        "if False:",
        (CLONING + "test_a_run_file_names_its_demonstrations_and_a_resume_reads_them_again",),
        "imitation/demonstrations.py",
    ),
    Mutation(
        "cloning makes demonstrated actions less likely",
        '"cloning_loss": -self.coef * log_prob',
        '"cloning_loss": self.coef * log_prob',
        (CLONING + "test_value_and_gradient_are_those_of_the_likelihood",),
        "imitation/cloning.py",
    ),
    Mutation(
        "all rows draw the same demonstrated step",
        "keys = jax.vmap(jax.random.fold_in, (None, 0))(self.key, rows)",
        "keys = jax.vmap(jax.random.fold_in, (None, 0))(self.key, 0 * rows)",
        (CLONING + "test_draws_are_uniform_and_belong_to_rows",),
        "learning/forward.py",
    ),
    Mutation(
        "observations of Minari are shifted after the first episode",
        "return np.arange(steps) + before",
        "return np.arange(steps)",
        (DEMONSTRATIONS + "test_last_observations_of_episodes_have_no_action",),
        "imitation/demonstrations.py",
    ),
    Mutation(
        "demonstrations are read with pickle",
        "np.load(path, allow_pickle=False)",
        "np.load(path, allow_pickle=True)",
        (DEMONSTRATIONS + "test_a_file_is_data",),
        "imitation/demonstrations.py",
    ),
]
