"""Breaks of sweeps on a cluster: losses of workers, snapshots and what they may write; sweeps.py has five more."""

from breaks.base import Mutation

DRIVER = "tests/sweeps/placing/test_driver.py::"
TRANSPORT = "tests/sweeps/placing/test_transport.py::"
LOST = DRIVER + "test_a_lost_worker_goes_on_from_its_last_checkpoint_and_nothing_counts_twice"

MUTATIONS = [
    Mutation(
        "a worker is lost once less than allowed",
        "placed.lost <= self._cluster.retries",
        "placed.lost < self._cluster.retries",
        (LOST,),
        "placing/driver.py",
    ),
    Mutation(
        "a program that loses workers is placed once too often",
        "placed.lost <= self._cluster.retries",
        "placed.lost <= 1 + self._cluster.retries",
        (DRIVER + "test_a_program_that_loses_too_many_workers_ends_the_sweep_which_goes_on_without_a_cluster",),
        "placing/driver.py",
    ),
    Mutation(
        "snapshots are not written at checkpoints",
        "        if not self._on_host and self._outbox.due:\n            self._send()\n",
        "",
        (DRIVER + "test_a_worker_sends_its_checkpoints_while_it_trains",),
        "placing/worker.py",
    ),
    Mutation(
        "checkpoints are written before the rows up to them",
        "return ORDER.index(second) + 1 if second in ORDER else 0",
        "return 0 if second in ORDER else 1",
        (TRANSPORT + "test_a_kill_while_a_snapshot_is_written_leaves_what_can_be_resumed",),
        "placing/transport.py",
    ),
    Mutation(
        "files that a worker has removed stay",
        "if name not in snapshot.names})",
        "if name not in snapshot.names and False})",
        (TRANSPORT + "test_a_later_snapshot_has_only_what_changed_and_removes_what_is_gone",),
        "placing/transport.py",
    ),
    Mutation(
        "a worker writes into the directories of others",
        "if _run_of(name) not in runs or",
        "if",
        (TRANSPORT + "test_files_outside_of_the_run_directories_are_refused",),
        "placing/transport.py",
    ),
]
