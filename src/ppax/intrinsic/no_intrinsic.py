"""No intrinsic reward."""

from __future__ import annotations

from gymnasium import spaces

from ppax.protocols import IntrinsicRewards, Network
from ppax.types import Key, PyTree, Rollout, part


@part
class NoIntrinsic:
    """No intrinsic reward: those of the environment only."""

    def init(self, network: Network, observation_space: spaces.Space, key: Key) -> PyTree:
        """Return no state."""
        return ()

    def initial_streams(self, num_streams: int) -> PyTree:
        """Return no state of streams."""
        return ()

    def __call__(self, network: Network, state: PyTree, rollout: Rollout) -> IntrinsicRewards:
        """Return no rewards, so that the program is the same as without this part."""
        return IntrinsicRewards(None, state, rollout.intrinsic)
