"""Episodes of evaluations on the host: how many each agent plays where episodes of others are cut."""

import numpy as np

from ppax.envs.hosting.stepper import HostStep
from ppax.training.host.episodes import _Episodes

DEAD_AFTER, MAX_STEPS = 5, 20


def step_of(t):
    """Step t of a game in which agent 0 dies, and agent 1 plays for ever."""
    valid = np.array([t < DEAD_AFTER, True])
    terminated, no = np.array([t == DEAD_AFTER - 1, False]), np.zeros(2, bool)
    return HostStep([], valid.astype(np.float32), terminated, no, no, valid, None)


def test_an_agent_that_died_plays_again_after_the_reset_that_a_cut_teammate_waits_for():
    run, rounds = _Episodes(2, 2, 4, MAX_STEPS), 0
    while (run.left > 0).any():
        for t in range(10 * MAX_STEPS):
            if not run.playing.any():
                break
            run.count(slice(0, 2), step_of(t))
        run.begin_again()
        rounds += 1
    assert [len(done) for done in run._done] == [2, 2]
    assert run._unplayed == 0
    assert rounds == 2


def test_an_agent_that_never_appears_does_not_keep_an_evaluation_going():
    """Neither where nobody plays, nor where its teammate plays for ever and is cut."""
    no = np.zeros(2, bool)
    for valid, unplayed in ((no, 4), (np.array([True, False]), 2)):
        run, step = _Episodes(2, 2, 4, MAX_STEPS), HostStep([], valid.astype(np.float32), no, no, no, valid, None)
        for _ in range(10):
            for _ in range(10 * MAX_STEPS):
                if not run.playing.any():
                    break
                run.count(slice(0, 2), step)
            run.begin_again()
        assert not (run.left > 0).any()
        assert run._unplayed == unplayed
