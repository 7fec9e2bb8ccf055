"""Stop conditions and the best policy, passed to `fit` among the `callbacks` and updated at every log row.

    best = KeepBest("episode_return")
    stop = Or(HitsUpperBound("episode_return", 475), StopsRising("episode_return", patience=20))
    run = ppax.fit(agent, env, callbacks=[best, stop])
    ppax.evaluate(agent, env, best.learner, jax.random.key(0))

Conditions are frozen values: each run has its own state of them. A row where the metric is NaN (no episode finished) is
skipped: what was met stays met. A resumed run begins with a new state; only the conditions of the run file (`stop`,
`best`; text.py, ending.py) are restored.
"""

from ppax.run.conditions.best import KeepBest
from ppax.run.conditions.combined import And, Or
from ppax.run.conditions.single import HitsLowerBound, HitsUpperBound, Plateaus, StopsFalling, StopsRising

__all__ = ["And", "HitsLowerBound", "HitsUpperBound", "KeepBest", "Or", "Plateaus", "StopsFalling", "StopsRising"]
