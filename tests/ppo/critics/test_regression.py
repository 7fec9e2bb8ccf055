"""Regression critic: gradient of each branch of the clipped loss, and the Huber loss."""

from functools import partial

import numpy as np

from ppax.ppo.critics import Regression
from ppax.ppo.losses import ClippedSurrogate
from support.loss_rows import batch_of, run

only_critic = partial(run, ClippedSurrogate(), [0.0], vf_coef=1.0)  # with advantage 0 the loss is the critic's only


def test_value_clip_zeroes_the_gradient_only_where_the_clipped_loss_is_larger():
    # V_old = 0, c = 1. Loss 0.5 max((V - R)^2, (clip(V, -1, 1) - R)^2), slope V - R or 0
    cases = [
        # V, R, loss, slope
        (0.5, 2.0, 1.125, -1.5),  # inside the clip range: no effect
        (1.5, 3.0, 2.0, 0.0),  # outside, nearer to R: clipped V = 1 is farther from 3, gradient 0
        (3.0, 0.0, 4.5, 3.0),  # outside, away from R: V itself is farther, full gradient
        (-1.5, -3.0, 2.0, 0.0),
        (-3.0, 0.0, 4.5, -3.0),
    ]
    for value, target, loss, slope in cases:
        got = only_critic(batch_of([0.0], target=target), value, critic=Regression(value_clip=1.0))
        np.testing.assert_allclose([got.loss, got.by_value[0]], [loss, slope], rtol=1e-6)
    # the clip range is around the old value, not around 0: V = 1.5 is within 1 of V_old = 2
    batch = batch_of([0.0], target=3.0, old_value=2.0)
    got = only_critic(batch, 1.5, critic=Regression(value_clip=1.0))
    np.testing.assert_allclose([got.loss, got.by_value[0]], [1.125, -1.5], rtol=1e-6)


def test_huber_is_quadratic_near_the_target_and_linear_beyond_delta():
    # delta = 2: 0.5 e^2 up to |e| = 2, then 2 (|e| - 1); the slope is e, then 2 sign e: never 0
    for error, loss, slope in ((1.0, 0.5, 1.0), (-2.0, 2.0, -2.0), (5.0, 8.0, 2.0), (-1e4, 19998.0, -2.0)):
        got = only_critic(batch_of([0.0], target=-error), critic=Regression(huber_delta=2.0))
        np.testing.assert_allclose([got.loss, got.by_value[0]], [loss, slope], rtol=1e-6)


def test_huber_and_value_clip_together():
    # V = 5, V_old = 0, c = 1, R = -3, delta = 2: huber(8) = 14 is larger than huber(1 + 3) = 6; for R = 9
    # huber(-4) = 6 is smaller than huber(1 - 9) = 14, with gradient 0
    critic = Regression(huber_delta=2.0, value_clip=1.0)
    for target, expected, slope in ((-3.0, 14.0, 2.0), (9.0, 14.0, 0.0)):
        got = only_critic(batch_of([0.0], target=target), 5.0, critic=critic)
        np.testing.assert_allclose([got.loss, got.by_value[0]], [expected, slope], rtol=1e-6)
