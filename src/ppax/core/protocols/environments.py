"""Protocol of environments written in JAX."""

from __future__ import annotations

from typing import Protocol

from gymnasium import spaces

from ppax.core.types import EnvReset, EnvStep, Key, PyTree


class Environment(Protocol):
    """JAX environment protocol: pure functions of (state, action, key), one environment, no autoreset."""

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation."""

    @property
    def action_space(self) -> spaces.Space:
        """Space of one agent's action."""

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """Length of the agent axis; None: no such axis; a dict: one length per group of agents (agents/groups.py)."""

    def reset(self, key: Key) -> EnvReset:
        """Start an episode; `key` is its source of randomness."""

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Advance by one step. If both `terminated` and `truncated` are set, the step counts as terminated."""
