"""Breaks of files: links, vanished directories, damaged and foreign checkpoints, full disks, memory."""

from breaks.base import Mutation

RUN_DIR = "tests/run/test_directory.py::"
CHECKPOINT = "tests/run/test_checkpoint.py::"
RESUME = "tests/run/test_resume.py::"
LOGS = "tests/loggers/test_files.py::"
MEMORY = "tests/program/test_footprint.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "any object is accepted as a callback",
        "    if not callable(given):",
        "    if False:",
        ("tests/run/conditions/test_callbacks.py::test_other_objects_are_refused_with_the_accepted_forms",),
        "conditions/callbacks.py",
    ),
    Mutation(
        "links in a run directory are not looked for",
        "    if names:\n        shown",
        "    if False:\n        shown",
        (RUN_DIR + "test_a_run_directory_with_links_is_refused_with_their_names",),
        "run/directory.py",
    ),
    Mutation(
        "links are looked for at the top of a run directory alone",
        "pending.append(Path(entry.path))",
        "pass",
        (RUN_DIR + "test_a_run_directory_with_links_is_refused_with_their_names",),
        "storage/safe_files.py",
    ),
    Mutation(
        "a file is written through a link",
        "NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN",
        "NEW = os.O_WRONLY | os.O_CREAT",
        ("tests/storage/test_safe_files.py::test_create_refuses_existing_files_and_links",),
        "storage/safe_files.py",
    ),
    Mutation(
        "a file is appended to through a link",
        "os.O_APPEND | os.O_CREAT | PLAIN",
        "os.O_APPEND | os.O_CREAT",
        ("tests/storage/test_safe_files.py::test_links_are_not_opened",),
        "storage/safe_files.py",
    ),
    Mutation(
        "a lock may be another file's second name",
        "lock.stat().st_nlink > 1",
        "lock.stat().st_nlink > 2",
        (RUN_DIR + "test_a_lock_that_is_a_hard_link_is_refused",),
        "run/directory.py",
    ),
    Mutation(
        "checkpoints of another run beside a new one",
        "if (path / name).is_dir() and any((path / name).iterdir()):",
        "if False:",
        (RUN_DIR + "test_a_directory_with_checkpoints_but_no_run_file_is_refused",),
        "run/directory.py",
    ),
    Mutation(
        "a directory that vanishes is made anew",
        "if not same or not (self.path / RUN_FILE).exists():",
        "if False:",
        (RUN_DIR + "test_a_run_ends_if_its_directory_is_removed_or_replaced",),
        "run/directory.py",
    ),
    Mutation(
        "the checkpoint that was just written is pruned",
        "older = [path for path in list_checkpoints(directory) if path.name <= final.name]",
        "older = list_checkpoints(directory)",
        (RUN_DIR + "test_a_new_checkpoint_is_never_removed_in_favour_of_higher_iterations",),
        "run/checkpoint.py",
    ),
    Mutation(
        "a manifest's checksum is not compared",
        'if version == FORMAT and manifest["checksum"] != sealed(manifest)["checksum"]:',
        "if False:",
        (CHECKPOINT + "test_every_bit_of_a_manifest_is_checked",),
        "storage/manifest.py",
    ),
    Mutation(
        "a checkpoint's name may be of another iteration",
        "if f\"{manifest['iteration']:010d}\" != path.name:",
        "if False:",
        (CHECKPOINT + "test_a_checkpoint_of_another_iteration_than_its_name_is_refused",),
        "storage/manifest.py",
    ),
    Mutation(
        "a checkpoint of another run is taken",
        "if run_id and saved_by and saved_by != run_id:",
        "if False:",
        (RUN_DIR + "test_a_checkpoint_of_another_run_is_skipped",),
        "run/checkpoint.py",
    ),
    Mutation(
        "a checkpoint that is gone is not looked for again",
        "                if not path.is_dir():\n                    break",
        "                if not path.is_dir():\n                    continue",
        (CHECKPOINT + "test_a_checkpoint_removed_before_it_is_read_makes_the_search_begin_again",),
        "run/checkpoint.py",
    ),
    Mutation(
        "a learner that is not finite is saved",
        "        if names:\n            raise NotFinite",
        "        if False:\n            raise NotFinite",
        (RUN_DIR + "test_saver_refuses_a_state_that_is_not_finite_and_names_no_checkpoint",),
        "run/saving.py",
    ),
    Mutation(
        "a checkpoint that is not finite is resumed",
        "names = checkpoint.not_finite(state)\n        if names:\n            raise checkpoint.Damaged",
        "names = checkpoint.not_finite(state)\n        if False:\n            raise checkpoint.Damaged",
        (RUN_DIR + "test_checkpoints_that_are_not_finite_are_skipped",),
        "run/restore.py",
    ),
    Mutation(
        "an infinity of the optimiser counts as a fault",
        '(jnp.isnan if ".opt_state" in name else lambda x: ~jnp.isfinite(x))',
        "(lambda x: ~jnp.isfinite(x))",
        (RUN_DIR + "test_infinities_in_environment_and_optimiser_states_are_valid",),
        "run/checkpoint.py",
    ),
    Mutation(
        "a message names a checkpoint that is not there",
        'if path else "; no checkpoint had been saved before"',
        'if True else ""',
        (RUN_DIR + "test_saver_refuses_a_state_that_is_not_finite_and_names_no_checkpoint",),
        "run/saving.py",
    ),
    Mutation(
        "the split over devices is chosen anew",
        "    return with_devices(agent, devices)",
        "    return agent",
        (RUN_DIR + "test_resume_uses_the_number_of_devices_of_the_checkpoint",),
        "run/origin.py",
    ),
    Mutation(
        "an edited run file is not reported",
        "if paths and saved.config:",
        "if False:",
        (RUN_DIR + "test_resume_warns_of_a_number_that_was_changed_in_the_run_file",),
        "run/origin.py",
    ),
    Mutation(
        "three failures of a disk end a run",
        "            if disk.hopeless:",
        "            if disk.hopeless or disk._failures >= 3:",
        (RESUME + "test_a_few_failed_checkpoints_do_not_end_a_run",),
        "run/saving.py",
    ),
    Mutation(
        "half a row stays in a file",
        "os.ftruncate(self._handle, size)",
        "pass",
        (LOGS + "test_rows_logged_while_the_disk_is_full_are_written_later",),
        "loggers/files.py",
    ),
    Mutation(
        "a disk that fails is asked at every row",
        "        if self._disk.due:\n            self._write()",
        "        if True:\n            self._write()",
        (LOGS + "test_failed_writes_are_retried_at_doubling_intervals",),
        "loggers/files.py",
    ),
    Mutation(
        "rows of a stranger are believed",
        "if value is None or _is_number(value)}",
        "}",
        (RUN_DIR + "test_a_run_resumes_despite_hostile_rows",),
        "loggers/files.py",
    ),
    Mutation(
        "a closed terminal ends a run without a checkpoint",
        "(signal.SIGTERM, signal.SIGINT, *_HANGUP)",
        "(signal.SIGTERM, signal.SIGINT)",
        (RESUME + "test_a_run_stopped_by_a_signal_and_resumed_equals_an_uninterrupted_one",),
        "run/signals.py",
    ),
    Mutation(
        "a run that cannot fit is begun",
        "if room is not None and needed.total > room:",
        "if False:",
        (MEMORY + "test_the_advised_num_envs_fits",),
        "program/footprint.py",
    ),
]
