"""An extension of your own: a smoothness loss over neighbouring actions, so that a robot's motors do not jitter.

Mysore et al. 2021, CAPS, https://arxiv.org/abs/2012.06644. This file is all of it. In this directory it works on the
command line and in run files, too:

    ppax train Pendulum-v1 --trust smooth_actions --agent.extensions.smooth smooth_actions:Smoothness
"""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from ppax.types import ConfigError, Scalar, number, part

import ppax
from ppax.extensions import Before, Extension, Terms, following_in_episode

ITERATIONS = 60
SENSOR_NOISE = 0.05  # standard deviation of an error in each number of an observation, only where policies are compared


@part
class Smoothness(Extension):
    """Smooth actions: coef * distance of the policy's mean action from that in the next observation.

    Mysore et al. 2021, https://arxiv.org/abs/2012.06644, its temporal term L_T.
    """

    coef: Scalar = number("weight of the distance between neighbouring mean actions", default=0.3, low=0.0)

    def before(self, agent, state, streams, rollout, reward):
        """Find the observation after each step [T, B]; the loss reads it as `rows.extras`."""
        return Before(state, reward, following_in_episode(rollout))

    def terms(self, rows):
        """Terms of rows [N]; 0 where the next observation is not known. ConfigError for other actions than vectors."""
        after = rows.extras
        action = rows.policy.distribution.mode()
        if not (isinstance(action, jax.Array) and jnp.issubdtype(action.dtype, jnp.floating)):
            raise ConfigError("smoothness is for actions of one Box; leave the extension out")
        change = rows.forward(after.obs).distribution.mode() - action
        distance = jnp.sqrt(jnp.square(change).sum(axis=-1) + 1e-12)  # the gradient of a root is not finite at 0
        distance = jnp.where(after.known, distance, 0.0)
        return Terms({"smoothness_loss": self.coef * distance}, {"action_distance": distance})


def main() -> dict[str, tuple[float, float]]:
    """Train Pendulum without the extension and with it; return (mean return, mean |a_(t+1) - a_t|) of both."""
    env = ppax.make("Pendulum-v1", num_envs=16)
    results = {}
    for name, extensions in {"without": (), "with": (Smoothness(),)}.items():
        agent = ppax.PPO(
            ppax.networks.mlp(env),
            extensions=extensions,
            minibatch=ppax.minibatches.Shuffle(num_minibatches=8),
            learning_rate=1e-3,
            gamma=0.95,
            num_epochs=10,
            normalize_obs=True,
            normalize_reward=True,
        )
        run = ppax.fit(agent, env, ITERATIONS * 16 * 128, num_steps=128, log=ppax.Log(console=False))
        results[name] = played(run.policy())
        print(f"{name}: return {results[name][0]:.0f}, mean |a_t+1 - a_t| {results[name][1]:.2f}")
    return results


def played(policy: ppax.Policy, episodes: int = 8) -> tuple[float, float]:
    """Play Gymnasium's own Pendulum by a noisy sensor; return mean return and mean change of the action."""
    game, noise = gymnasium.make("Pendulum-v1"), np.random.default_rng(0)
    returns, changes = [], []
    for seed in range(episodes):
        (obs, _), actions, rewards, over = game.reset(seed=seed), [], [], False
        policy.reset()
        while not over:
            seen = obs + SENSOR_NOISE * noise.normal(size=obs.shape)
            actions.append(policy.act(seen.astype(np.float32)))
            obs, reward, terminated, truncated, _ = game.step(actions[-1])
            rewards.append(reward)
            over = terminated or truncated
        returns.append(sum(rewards))
        changes.append(np.abs(np.diff(actions, axis=0)).mean())
    game.close()
    return float(np.mean(returns)), float(np.mean(changes))


if __name__ == "__main__":
    main()
