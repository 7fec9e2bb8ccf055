"""Base of the wrappers: a compiled environment around another one, with its spaces and its number of agents."""

from __future__ import annotations

from gymnasium import spaces

from ppax.core.protocols import Environment
from ppax.core.types import part


@part
class Wrapper:
    """Base of wrappers: a compiled environment around `env`, with its spaces and agents.

    A wrapper that has other spaces or agents declares them again.
    """

    env: Environment

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation, that of the inner environment."""
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Space of one agent's action, that of the inner environment."""
        return self.env.action_space

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """Number of agents of the inner environment; a dict by group with groups; None without an agent axis."""
        return self.env.num_agents
