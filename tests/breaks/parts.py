"""Breaks of what users meet when they write parts of their own."""

from breaks.base import Mutation

CHECKS = "tests/checks/test_broken.py::"
DIRECTORY = "tests/run/test_directory.py::"
RULES = "tests/ppo/gradients/test_rules.py::"
MUTATIONS = [
    Mutation(
        "a gradient step ignores the agent's gradient rule",
        "found = rule(own, gradient_at, params)",
        "found = own",
        (RULES + "test_a_rule_changes_the_step_of_sgd_by_its_factor",),
        "ppo/gradients.py",
    ),
    Mutation(
        "a gradient rule gets the gradient at the current parameters for any",
        "return mean_gradient(partial(minibatch_loss, agent), trained, chunk",
        "return mean_gradient(partial(minibatch_loss, agent), state.trained, chunk",
        (RULES + "test_sharpness_aware_step_is_the_gradient_after_a_climb_of_length_rho",),
        "ppo.py",
    ),
    Mutation(
        "metrics of a gradient rule take the place of the loss's",
        "if name in own.metrics and x is not own.metrics[name]]",
        "if False]",
        (RULES + "test_results_that_are_no_gradient_are_refused",),
        "ppo/gradients.py",
    ),
    Mutation(
        "a part that chooses among the sequences fails the self-test",
        "promised = isinstance(agent.minibatch, Shuffle)",
        "promised = True",
        (CHECKS + "test_minibatches_of_a_subset_are_a_note_and_no_failure",),
        "checks/update.py",
    ),
    Mutation(
        "a shuffle may leave sequences out",
        "promised = isinstance(agent.minibatch, Shuffle)",
        "promised = False",
        (CHECKS + "test_minibatches_that_do_not_cover_the_rollout",),
        "checks/update.py",
    ),
    Mutation(
        "resume takes another agent without a word",
        "config.Built(agent, env, run) if given else None",
        "None",
        (DIRECTORY + "test_resume_warns_of_another_learning_rate_once_and_trains_with_it",),
        "run/fit.py",
    ),
    Mutation(
        "numbers of a passed agent are compared in more digits than programs have",
        "not python_objects.same_value(was.get(path), now.get(path))",
        "was.get(path) != now.get(path)",
        (DIRECTORY + "test_the_same_agent_and_environment_are_resumed_without_a_warning",),
        "run/provenance.py",
    ),
    Mutation(
        "objects beside the run file are not compared at a resume",
        "set(objects) ^ set(python_objects.objects(agent, env, given))",
        "set()",
        (DIRECTORY + "test_resume_warns_of_another_agent_or_environment_than_the_recorded_one",),
        "run/provenance.py",
    ),
    Mutation(
        "the numbers of a head are static",
        'head: Head = dataclasses.field(metadata={"doc": ""})',
        "head: Head = static()",
        (
            "tests/training/test_sweeps.py::test_a_number_of_a_head_is_swept",
            "tests/training/test_sweeps.py::test_a_number_of_a_head_is_annealed",
        ),
        "networks/composed.py",
    ),
    Mutation(
        "scores are taken along the fields of a distribution",
        "lambda key: _unit(jax.jvp(fields, (inputs,), (_direction(inputs, key),))[1])",
        "lambda key: _unit([jax.random.normal(key, x.shape) for x in fields(inputs)])",
        (CHECKS + "test_a_distribution_of_normalised_log_probabilities",),
        "checks/update.py",
    ),
    Mutation(
        "scores are taken along nothing",
        "return [x * scale.reshape(",
        "return [0.0 * x * scale.reshape(",
        (
            CHECKS + "test_a_log_prob_of_something_else_than_the_sample",
            CHECKS + "test_a_standard_deviation_of_something_else_than_the_sample",
        ),
        "checks/update.py",
    ),
    Mutation(
        "an observation without an element is accepted",
        "if not any(math.prod(entry.shape) for entry in chosen):",
        "if False:",
        ("tests/networks/test_composed.py::test_an_observation_without_an_element_is_refused",),
        "networks/observations.py",
    ),
]
