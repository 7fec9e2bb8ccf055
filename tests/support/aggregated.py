"""Scores of two libraries on four environments (rows), five seeds each, which rliable 1.2.0 has aggregated.

The tests have its results of aggregate_iqm, aggregate_optimality_gap, probability_of_improvement and
create_performance_profile, with 50,000 resamples.
"""

import numpy as np

FIRST = np.array(
    [
        [0.4, 0.355, 0.351, 0.411, 0.266],
        [0.86, 0.602, 0.676, 0.614, 0.708],
        [1.018, 1.118, 1.247, 1.091, 0.53],
        [0.811, 1.034, 0.936, 0.97, 0.771],
    ]
)
SECOND = np.array(
    [
        [0.316, 0.516, 0.495, 0.402, 0.497],
        [0.653, 0.663, 0.723, 0.538, 0.877],
        [0.62, 0.245, 0.541, 1.318, 0.825],
        [0.927, 0.846, 0.852, 0.819, 0.889],
    ]
)
