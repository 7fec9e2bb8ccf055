"""Algorithmic trading of one asset, whose price drifts and oscillates at rates that the agent must infer.

The task of rl8, https://github.com/theOGognf/rl8. It never terminates; use TimeLimit. Actions that the agent cannot
take, such as selling without the asset, are masked.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, PyTree, Scalar, number, part
from ppax.envs.builtin.drawing import AMBER, BLUE, GREEN, GREY, RED, Canvas

HOLD, BUY, SELL = range(3)


class AlgoTradingState(NamedTuple):
    """State of AlgoTrading: price, parameters of the price process, whether the asset is held, its purchase price."""

    time: Array  # [] int32
    log_price: Array  # []
    log_change: Array  # [] change of log_price in the last step
    invested: Array  # [] bool
    log_paid: Array  # [] log of the purchase price; without the asset, log_price before the last step
    drift: Array  # [] growth rate of the price
    swing: Array  # [] amplitude of the oscillation
    frequency: Array  # [] rad a step


@part
class AlgoTrading:
    """Environment of trading one asset, whose price drifts and oscillates at rates that the agent must infer.

    Actions: hold, buy (only without the asset), sell (only with it). Observation: a dict of `invested` and the
    logarithms of price / last price (`change`) and price / purchase price (`gain`). The reward of selling is log(price
    / purchase price); that of the action hold with the asset is the `change` in the observation before this action; all
    other rewards are 0.
    """

    max_drift: Scalar = number("the price's drift is uniform in +- this", default=0.05, low=0.0, high=0.5)
    max_swing: Scalar = number("the price's amplitude is uniform in +- this", default=0.05, low=0.0, high=0.5)
    max_frequency: Scalar = number("the price's frequency is uniform from 0 to this", default=np.pi, low=0.0)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Dict:
        """Space of observations: a Dict of "invested", Discrete, and "change" and "gain", Boxes [1]."""
        amount = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        return spaces.Dict({"invested": spaces.Discrete(2), "change": amount, "gain": amount})

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: hold, buy, sell."""
        return spaces.Discrete(3)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of AlgoTrading: a new asset, which the agent does not hold."""
        time_key, rate_key, price_key = jax.random.split(key, 3)
        rates = jax.random.uniform(rate_key, (3,), jnp.float32)
        log_price = jnp.log(jax.random.uniform(price_key, (), jnp.float32, 100.0, 10_000.0))
        zero = jnp.zeros((), jnp.float32)
        state = AlgoTradingState(
            time=jax.random.randint(time_key, (), 0, 10, jnp.int32),
            log_price=log_price,
            log_change=zero,
            invested=jnp.zeros((), bool),
            log_paid=log_price,
            drift=self.max_drift * (2.0 * rates[0] - 1.0),
            swing=self.max_swing * (2.0 * rates[1] - 1.0),
            frequency=self.max_frequency * rates[2],
        )
        return EnvReset(state, _observe(state), _mask(state))

    def step(self, state: AlgoTradingState, action: Array, key: Key) -> EnvStep:
        """Return the result of trading at the observed price, after which the price advances."""
        # masked actions have no effect
        buys, sells = (action == BUY) & ~state.invested, (action == SELL) & state.invested
        holds = state.invested & ~sells
        reward = jnp.where(sells, state.log_price - state.log_paid, jnp.where(holds, state.log_change, 0.0))
        time = state.time + 1
        change = jnp.log1p(state.drift) + jnp.log1p(state.swing * jnp.sin(state.frequency * time))
        new = state._replace(
            time=time,
            log_price=state.log_price + change,
            log_change=change,
            invested=buys | holds,
            log_paid=jnp.where(holds, state.log_paid, state.log_price),
        )
        never = jnp.zeros((), bool)
        return EnvStep(new, _observe(new), reward.astype(jnp.float32), never, never, _mask(new))

    def render(self, state: AlgoTradingState) -> np.ndarray:
        """Return a picture [H, W, 3] of the price over the last 40 steps, and of the purchase price while invested."""
        drift, swing, frequency = float(state.drift), float(state.swing), float(state.frequency)
        times = np.arange(int(state.time) - 40, int(state.time) + 1)
        changes = np.log1p(drift) + np.log1p(swing * np.sin(frequency * times))
        prices = np.cumsum(changes) - changes.sum()  # relative to the present price
        scale = max(float(np.abs(prices).max()), 0.1)
        canvas = Canvas((0.0, -0.6), (2.0, 0.6))
        canvas.line((0.0, 0.0), (2.0, 0.0), GREY, 1.0)
        points = np.stack([np.linspace(0.05, 1.9, len(times)), 0.5 * prices / scale], axis=1)
        canvas.path(points, BLUE)
        if bool(state.invested):
            paid = float(np.clip(0.5 * float(state.log_paid - state.log_price) / scale, -0.58, 0.58))
            canvas.line((0.05, paid), (1.9, paid), GREEN if paid < 0 else RED, 1.5)
        canvas.disc(points[-1], 0.04, AMBER)
        return canvas.image()


def _observe(state: AlgoTradingState) -> PyTree:
    return {
        "invested": state.invested.astype(jnp.int32),
        "change": state.log_change[None],
        "gain": (state.log_price - state.log_paid)[None],
    }


def _mask(state: AlgoTradingState) -> Array:
    """Return the action mask [3]: hold always, buy without the asset, sell with it."""
    return jnp.stack([jnp.ones((), bool), ~state.invested, state.invested])
