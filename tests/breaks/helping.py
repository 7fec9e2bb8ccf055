"""Breaks of what helps a reader: the final evaluation in sight, time limits and views by name, bundles in commands."""

from breaks.base import Mutation

SHOWN = "tests/cli/test_evaluation_progress.py::"
LIMITS = "tests/envs/hosting/test_time_limit.py::"
BUNDLES = "tests/cli/test_bundles.py::"
SEEN = "tests/envs/wrappers/test_seen.py::"
HUB = "tests/policy/test_hub.py::"

MUTATIONS = [
    Mutation(
        "lines about a running evaluation come at equal intervals",
        "self._next *= 2.0",
        "self._next += 5.0",
        (SHOWN + "test_without_a_terminal_a_line_says_what_is_evaluated_and_others_follow_at_growing_intervals",),
        "loggers/evaluating.py",
    ),
    Mutation(
        "nobody learns how many episodes of an evaluation have ended",
        "watcher(run.ended, run.steps)",
        "watcher(0, run.steps)",
        (SHOWN + "test_evaluations_on_the_host_count_their_ended_episodes_and_steps",),
        "training/host/episodes.py",
    ),
    Mutation(
        "a signal in the final evaluation ends the process as if training were lost",
        "with interrupted_by_signals(), shown_evaluation(settings.episodes, console):",
        "with shown_evaluation(settings.episodes, console):",
        (SHOWN + "test_a_signal_in_the_final_evaluation_says_that_the_run_is_complete",),
        "cli/output.py",
    ),
    Mutation(
        "handlers of signals stay changed after the final evaluation",
        """        for name, handler in earlier.items():
            signal.signal(name, handler)


@contextmanager
def stop_on_signals""",
        """        pass


@contextmanager
def stop_on_signals""",
        (SHOWN + "test_a_signal_in_the_final_evaluation_says_that_the_run_is_complete",),
        "run/signals.py",
    ),
    Mutation(
        "the earliest evaluation in training is shown as the last",
        "last = run.evaluations[max(run.evaluations)]\n        count",
        "last = run.evaluations[min(run.evaluations)]\n        count",
        (SHOWN + "test_the_last_evaluation_in_training_is_the_latest_one",),
        "cli/output.py",
    ),
    Mutation(
        "a usual time limit of an environment on the host stays",
        "inner._max_episode_steps = steps",
        "pass",
        (LIMITS + "test_a_registered_id_gets_its_limit_replaced",),
        "hosting/time_limit.py",
    ),
    Mutation(
        "a class with arguments of its base gets a wrapper",
        "return any(name in inspect.signature(init).parameters for init in own)",
        "return False",
        (LIMITS + "test_classes_that_hand_arguments_on_take_what_their_bases_take",),
        "hosting/time_limit.py",
    ),
    Mutation(
        "the function set_params gets a wrapper of a time limit",
        "if limit is not None and set_params is None:",
        "if limit is not None:",
        (LIMITS + "test_environments_with_drawn_parameters_have_the_limit_in_each_episode",),
        "hosting/spec.py",
    ),
    Mutation(
        "agents at a time limit are not truncated",
        "running | {agent: True for agent, flag in truncations.items() if flag}",
        "truncations",
        (LIMITS + "test_agents_of_pettingzoo_are_truncated_together",),
        "hosting/time_limit.py",
    ),
    Mutation(
        "a start from a bundle waits for statistics that it does not hold",
        "kept = tuple(field for field in settings.keep if field not in OF_LEARNING)",
        "kept = settings.keep",
        (BUNDLES + "test_a_run_starts_from_a_bundle",),
        "run/warm_start.py",
    ),
    Mutation(
        "the environment of a bundle that no file names is looked up by its name",
        'if run_config.get("env") in (None, "", "own"):',
        "if False:",
        (BUNDLES + "test_a_bundle_whose_environment_is_a_python_object_says_what_to_write",),
        "run/loading.py",
    ),
    Mutation(
        "the indices of a partial view may be twice the same",
        " or len(set(indices)) < len(indices):",
        ":",
        (SEEN + "test_other_indices_are_refused",),
        "wrappers/views.py",
    ),
    Mutation(
        "a partial view around a built-in environment is not recorded",
        "if builtin is not None:",
        "if False:",
        (SEEN + "test_a_wrapper_around_a_built_in_environment_is_recorded_and_built_again",),
        "config/description.py",
    ),
    Mutation(
        "a folder on the disk is taken for a repository of the Hub",
        'Path(repo).exists() or ("/" in repo and Path(repo).parent.is_dir())',
        "False",
        (HUB + "test_a_place_on_the_disk_is_not_taken_for_a_repository",),
        "reports/upload.py",
    ),
]
