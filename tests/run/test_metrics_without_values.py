"""Warning at the end of a run whose stop condition or best policy reads a metric that was always NaN."""

import pytest

import ppax
from ppax.config import BestSettings, Log
from ppax.envs import VectorEnv
from ppax.networks import mlp
from support.worlds import Counter


def test_a_metric_that_was_always_nan_is_warned_of_at_the_end():
    """Episodes of this environment end late, so no row has an episode_return."""
    env = VectorEnv(Counter(10**6), 2)
    agent = ppax.PPO(mlp(env, (4,)), num_epochs=1)
    options = {"stop": "episode_return >= 1 or grad_norm <= -1", "best": BestSettings("episode_return")}
    with pytest.warns(UserWarning, match="no episode ended") as said:
        ppax.fit(agent, env, 32, num_steps=8, log=Log(console=False, every=1), **options)
    words = [str(warning.message) for warning in said if "no log row" in str(warning.message)]
    assert [sentence.split(":")[0] for sentence in words] == ["stop", "best"]
    assert all("episode_return" in sentence and "TimeLimit" in sentence for sentence in words)
