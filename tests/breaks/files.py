"""Breaks of files: links, vanished directories, damaged and foreign checkpoints, full disks, memory."""

from breaks.base import Mutation

RUN_DIR = "tests/run/test_directory.py::"
CHECKPOINT = "tests/run/test_checkpoint.py::"
RESUME = "tests/run/test_resume.py::"
LOGS = "tests/loggers/test_files.py::"
MEMORY = "tests/program/test_footprint.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "links in a run directory are not looked for",
        "    if names:\n        shown",
        "    if False:\n        shown",
        (RUN_DIR + "test_a_run_directory_with_links_is_refused_by_name",),
        "run/directory.py",
    ),
    Mutation(
        "links are looked for at the top of a run directory alone",
        "pending.append(Path(entry.path))",
        "pass",
        (RUN_DIR + "test_a_run_directory_with_links_is_refused_by_name",),
        "storage/safe_files.py",
    ),
    Mutation(
        "a file is written through a link",
        "NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN",
        "NEW = os.O_WRONLY | os.O_CREAT",
        ("tests/storage/test_safe_files.py::test_a_new_file_is_new",),
        "storage/safe_files.py",
    ),
    Mutation(
        "a file is appended to through a link",
        "os.O_APPEND | os.O_CREAT | PLAIN",
        "os.O_APPEND | os.O_CREAT",
        ("tests/storage/test_safe_files.py::test_no_link_is_followed",),
        "storage/safe_files.py",
    ),
    Mutation(
        "a lock may be another file's second name",
        "lock.stat().st_nlink > 1",
        "lock.stat().st_nlink > 2",
        (RUN_DIR + "test_a_lock_that_is_another_files_second_name_is_refused",),
        "run/directory.py",
    ),
    Mutation(
        "checkpoints of another run beside a new one",
        "if (path / name).is_dir() and any((path / name).iterdir()):",
        "if False:",
        (RUN_DIR + "test_a_directory_with_checkpoints_and_no_run_is_refused",),
        "run/directory.py",
    ),
    Mutation(
        "a directory that vanishes is made anew",
        "if not same or not (self.path / RUN_FILE).exists():",
        "if False:",
        (RUN_DIR + "test_a_directory_that_vanishes_ends_the_run",),
        "run/directory.py",
    ),
    Mutation(
        "the checkpoint that was just written is pruned",
        "[path for path in list_checkpoints(directory) if path.name <= final.name][:-keep]",
        "list_checkpoints(directory)[:-keep]",
        (RUN_DIR + "test_what_was_just_written_is_never_pruned",),
        "run/checkpoint.py",
    ),
    Mutation(
        "a manifest's checksum is not compared",
        'if version == FORMAT and manifest["checksum"] != sealed(manifest)["checksum"]:',
        "if False:",
        (CHECKPOINT + "test_every_bit_of_a_manifest_counts",),
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
        (RUN_DIR + "test_a_checkpoint_of_another_run_is_passed_over",),
        "run/checkpoint.py",
    ),
    Mutation(
        "a checkpoint that is gone is not looked for again",
        "                if not path.is_dir():\n                    break",
        "                if not path.is_dir():\n                    continue",
        (CHECKPOINT + "test_a_checkpoint_that_is_gone_before_it_is_read_is_looked_for_again",),
        "run/checkpoint.py",
    ),
    Mutation(
        "a learner that is not finite is saved",
        "        if names:\n            raise NotFinite",
        "        if False:\n            raise NotFinite",
        (RUN_DIR + "test_a_learner_that_is_not_finite_is_not_saved",),
        "run/saving.py",
    ),
    Mutation(
        "a checkpoint that is not finite is resumed",
        "names = checkpoint.not_finite(state)\n        if names:\n            raise checkpoint.Damaged",
        "names = checkpoint.not_finite(state)\n        if False:\n            raise checkpoint.Damaged",
        (RUN_DIR + "test_checkpoints_that_are_not_finite_are_passed_over",),
        "run/restore.py",
    ),
    Mutation(
        "an infinity of the optimiser counts as a fault",
        '(jnp.isnan if ".opt_state" in name else lambda x: ~jnp.isfinite(x))',
        "(lambda x: ~jnp.isfinite(x))",
        (RUN_DIR + "test_infinities_that_environments_and_optimisers_keep_are_no_fault",),
        "run/checkpoint.py",
    ),
    Mutation(
        "a message names a checkpoint that is not there",
        'if path else "; no checkpoint had been saved before"',
        'if True else ""',
        (RUN_DIR + "test_no_message_names_a_checkpoint_that_is_not_there",),
        "run/saving.py",
    ),
    Mutation(
        "the split over devices is chosen anew",
        "    return with_devices(agent, devices)",
        "    return agent",
        (RUN_DIR + "test_the_split_over_devices_is_resumed",),
        "run/origin.py",
    ),
    Mutation(
        "an edited run file is not reported",
        "if paths and saved.config:",
        "if False:",
        (RUN_DIR + "test_a_number_that_was_edited_under_a_checkpoint_is_said",),
        "run/origin.py",
    ),
    Mutation(
        "three failures of a disk end a run",
        "            if disk.hopeless:",
        "            if disk.hopeless or disk._failures >= 3:",
        (RESUME + "test_a_disk_that_is_full_for_a_moment_ends_no_run",),
        "run/saving.py",
    ),
    Mutation(
        "half a row stays in a file",
        "os.ftruncate(self._handle, size)",
        "pass",
        (LOGS + "test_rows_of_a_time_without_a_disk_are_written_afterwards",),
        "loggers/files.py",
    ),
    Mutation(
        "a disk that fails is asked at every row",
        "        if self._disk.due:\n            self._write()",
        "        if True:\n            self._write()",
        (LOGS + "test_a_disk_that_fails_is_not_asked_at_every_row",),
        "loggers/files.py",
    ),
    Mutation(
        "rows of a stranger are believed",
        "if value is None or _is_number(value)}",
        "}",
        (RUN_DIR + "test_hostile_rows_stop_no_run",),
        "loggers/files.py",
    ),
    Mutation(
        "a closed terminal ends a run without a checkpoint",
        "(signal.SIGTERM, signal.SIGINT, *_HANGUP)",
        "(signal.SIGTERM, signal.SIGINT)",
        (RESUME + "test_stopped_by_a_signal_and_resumed",),
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
