"""Rendering of one environment that runs on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np

from ppax.core.types import ConfigError
from ppax.envs.hosting.arrays import Layout
from ppax.envs.hosting.host_env import HostEnv
from ppax.envs.hosting.stepper import Host
from ppax.envs.hosting.team import Team
from ppax.envs.hosting.workers import InProcess

MODE = "rgb_array"
DISPLAY = "without a display MuJoCo draws with MUJOCO_GL=egl (library libegl1) or MUJOCO_GL=osmesa (libosmesa6)"


class RenderedEnv(NamedTuple):
    """HostEnv of one environment, run in this process, and the environment itself, whose method `render` draws it."""

    env: HostEnv
    renderer: Any  # a gymnasium.Env or Team

    def picture(self) -> np.ndarray:
        """Return a picture of the environment's present state, uint8 [H, W, 3].

        Raises ConfigError if the environment returns no such picture, ImportError if a library is missing.
        """
        try:
            picture = self.renderer.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise ImportError(f"{self.env.name} cannot be drawn: {error}") from error
        except NotImplementedError:
            picture = None
        except Exception as error:  # any exception of a rendering library
            hint = f"; {DISPLAY}" if "gl" in str(error).lower() else ""
            raise ConfigError(f"{self.env.name} cannot be drawn: {type(error).__name__}: {error}{hint}") from error
        if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.shape[2:] != (3,):
            kind = f"{picture.dtype}{list(picture.shape)}" if isinstance(picture, np.ndarray) else repr(picture)
            raise ConfigError(
                f"{self.env.name} cannot be drawn: render() gave {kind}; the class has to take render_mode = {MODE!r} "
                "and then to give uint8 [H, W, 3]"
            )
        return picture


def with_rendering(env: HostEnv) -> RenderedEnv:
    """Return one new environment like those of `env`, with `render_mode = "rgb_array"`; the caller closes it.

    Raises ConfigError if the environment's metadata do not list this mode, and if `env` is a vector environment, of
    which no single environment can be drawn.
    """
    make: Any = env.host.factories[0]
    try:
        renderer: Any = make(render_mode=MODE)
    except TypeError:  # no such argument; it may render all the same
        renderer = make()
    if not isinstance(renderer, gymnasium.Env | Team):
        raise ConfigError(
            f"{env.name} is a vector environment: to be drawn, give ppax.envs.host a function that makes a single one"
        )
    inner = renderer.env if isinstance(renderer, Team) else renderer
    modes = (getattr(inner, "metadata", None) or {}).get("render_modes", [MODE])
    if MODE not in modes:
        renderer.close()
        raise ConfigError(f"{env.name} cannot be drawn: its render modes are {modes}, without {MODE!r}")
    spec = env.host.spec._replace(stagger=0)  # films and `ppax play` show whole episodes
    layout = Layout(1, 1, env.settings.action_repeat, spec)
    running = Host(spec, 1, lambda _: InProcess([lambda: renderer], layout), [lambda: renderer], unique=True)
    return RenderedEnv(HostEnv(running, 1, env.name, env.made), renderer)
