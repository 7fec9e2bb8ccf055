"""Breaks of what is promised: Windows, versions of file formats."""

from breaks.base import Mutation

WINDOWS = "tests/system/test_windows.py::"
SAMPLES = "tests/system/test_samples.py::"
RUNS = (WINDOWS + "test_a_run_needs_nothing_that_windows_lacks",)
REFUSED = (SAMPLES + "test_newer_formats_are_refused_with_their_number",)
WRITTEN = (SAMPLES + "test_new_files_have_the_version_of_their_format",)

MUTATIONS = [
    Mutation(
        "the lock of a directory that is moved aside stays open on Windows",
        '        if os.name != "posix":\n            self.close()',
        "        if False:\n            self.close()",
        RUNS,
        "run/directory.py",
    ),
    Mutation(
        "a signal that Windows lacks is taken for granted",
        '_HANGUP = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []',
        "_HANGUP = [signal.SIGHUP]",
        RUNS,
        "run/signals.py",
    ),
    Mutation(
        "a flag that Windows lacks is taken for granted",
        'NO_WAIT = getattr(os, "O_NONBLOCK", 0)',
        "NO_WAIT = os.O_NONBLOCK",
        RUNS,
        "core/untrusted.py",
    ),
    Mutation(
        "the owner of a directory is asked for where there is none",
        'elif hasattr(os, "geteuid") and there.stat()',
        "elif there.stat()",
        RUNS,
        "run/directory.py",
    ),
    Mutation(
        "commands are quoted for another system's shell",
        'return subprocess.list2cmdline(words) if os.name == "nt" else',
        "return",
        RUNS,
        "storage/paths.py",
    ),
    Mutation(
        "worker processes begin on Windows",
        'if self.vectorization == "async" and os.name != "posix":',
        "if False:",
        (WINDOWS + "test_worker_processes_are_refused_with_what_to_write",),
        "envs/settings.py",
    ),
    Mutation(
        "a run directory of a newer format is read as one of today",
        "    if written != FORMAT:\n",
        "    if False:\n",
        REFUSED,
        "run/directory.py",
    ),
    Mutation(
        "a score of a newer format is read as one of today",
        'if content.get("format", 1) != FORMAT:',
        "if False:",
        REFUSED,
        "scores/results.py",
    ),
    Mutation(
        "an option that came with a newer ppax counts as a change of the run file",
        "current.config.items() if path in given}",
        "current.config.items()}",
        (SAMPLES + "test_an_option_of_a_newer_version_is_no_change_of_the_run",),
        "run/provenance.py",
    ),
    Mutation(
        "a new run directory has no format",
        '{"format": FORMAT, "id": secrets',
        '{"id": secrets',
        WRITTEN,
        "run/directory.py",
    ),
    Mutation(
        "a new score has no format",
        'entries = {"format": FORMAT} | score.to_dict()',
        "entries = score.to_dict()",
        WRITTEN,
        "scores/results.py",
    ),
]
