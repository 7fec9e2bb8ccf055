"""Heads, one for each kind of action space: each makes an action distribution from a network's outputs.

`head_for` chooses the head for a space.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core import imports
from ppax.core.options import check_limits
from ppax.core.protocols import Distribution
from ppax.core.types import ConfigError, PyTree, part, static
from ppax.distributions import BallNormal, Beta, Categorical, Factorised, Joint, Normal, SquashedNormal
from ppax.distributions.boxes import Bounds, bounds_of, centre_and_half
from ppax.networks.observations import require_32_bits

# Half widths of boxes that a normal distribution with standard deviation 1 explores, and the greatest distance of their
# centres from 0 in half widths. MuJoCo's smallest is 0.4; boxes from 0 have a distance of 1
HALF_WIDTHS, FAR = (0.05, 20.0), 3.0
FAMILIES = ("normal", "squashed", "beta", "ball")  # distributions over a Box


class Head(Protocol):
    """Protocol of heads, which make an action distribution from a network's outputs."""

    @property
    def size(self) -> int:
        """Number of network outputs that the head takes."""

    @property
    def log_std_size(self) -> int:
        """Number of log standard deviations that do not depend on the state: they are parameters of the network."""

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Distribution:
        """Return the action distribution from `outputs` [size] and `log_std` [log_std_size].

        The action mask is a tree like the action (arrays/masks.py); None allows every action.
        """


@part
class CategoricalHead:
    """Head of Discrete spaces: one logit for each action."""

    size: int = static()
    start: int = static(default=0)
    log_std_size: int = static(default=0)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: Array | None) -> Categorical:
        """Return the categorical distribution from the logits `outputs` [size].

        `action_mask` is [size]: an action with False has probability 0. None allows every action. `log_std` is not
        read.
        """
        return Categorical.masked(outputs, action_mask, self.start)


@part
class IndependentHead:
    """Head of MultiDiscrete and MultiBinary spaces: independent categoricals, whose numbers of actions may differ."""

    counts: tuple[int, ...] = static()  # number of actions of each component
    start: tuple[int, ...] = static()
    shape: tuple[int, ...] = static()
    log_std_size: int = static(default=0)

    @property
    def size(self) -> int:
        """Number of network outputs that the head takes: one logit for each action of each independent categorical."""
        return sum(self.counts)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: Array | None) -> Factorised:
        """Return the distribution of independent categoricals from the logits `outputs` [size].

        `action_mask` [size] has the mask of each logit in the order of `outputs`: an action with False has probability
        0. None allows every action. `log_std` is not read.
        """
        ragged = min(self.counts) < max(self.counts)
        if action_mask is None and ragged:
            action_mask = jnp.ones(outputs.shape, bool)
        mask = None if action_mask is None else self._rows(action_mask)
        return Factorised(Categorical.masked(self._rows(outputs), mask), self.start, self.shape)

    def _rows(self, flat: Array) -> Array:
        """Return `flat`, a vector of the numbers of all components one after the other, as a matrix [k, n].

        Each of the k components (independent categoricals) has a row, with a number for each of its actions. A
        component with fewer than n actions, the largest number, is padded with 0 (False in a mask).
        """
        k, n = len(self.counts), max(self.counts)
        if min(self.counts) == n:
            return flat.reshape(*flat.shape[:-1], k, n)
        # slices instead of a gather, whose gradient is a scatter: slow on every device
        ends = np.cumsum(self.counts)
        pieces = [flat[..., end - count : end] for end, count in zip(ends, self.counts, strict=True)]
        leading = [(0, 0)] * (flat.ndim - 1)
        return jnp.stack([jnp.pad(piece, [*leading, (0, n - piece.shape[-1])]) for piece in pieces], axis=-2)


@part
class NormalHead:
    """Head of Box spaces: a mean and a log standard deviation for each element of the action.

    The log standard deviation is a free parameter. With `state_std` the standard deviation is instead the softplus of
    an output of the network.
    """

    bounds: Bounds = static()
    family: Callable[..., Distribution] = static(default=Normal)  # constructor: (mean, log_std, *bounds, *extra)
    extra: tuple[float, ...] = static(default=())  # further arguments, such as the ball's radius
    state_std: bool = static(default=False)
    std_init: float = static(default=1.0)  # standard deviation at network output 0, with state_std
    std_min: float | None = static(default=None)
    std_max: float | None = static(default=None)

    @property
    def size(self) -> int:
        """Number of network outputs that the normal head takes: means, and with `state_std` standard deviations."""
        return len(self.bounds.low) * (2 if self.state_std else 1)

    @property
    def log_std_size(self) -> int:
        """Number of log standard deviations that are free parameters.

        There is one for each element of the action; 0 with `state_std`.
        """
        return 0 if self.state_std else len(self.bounds.low)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Distribution:
        """Return the action distribution from `outputs` [size] and, without `state_std`, `log_std` [log_std_size].

        With `state_std`, standard deviations are among the outputs. `action_mask` is not read.
        """
        dims = len(self.bounds.low)
        if self.state_std:
            # softplus(shift) = std_init
            shift = self.std_init + math.log(-math.expm1(-self.std_init))
            log_std = log_softplus(outputs[..., dims:] + shift)
        assert log_std is not None
        if not (self.std_min is None and self.std_max is None):
            low, high = (x if x is None else float(np.log(x)) for x in (self.std_min, self.std_max))
            log_std = clip_inward(log_std, low, high)
        return self.family(outputs[..., :dims], log_std, *self.bounds, *self.extra)


@part
class BetaHead:
    """Head of bounded Box spaces: alpha and beta for each element of the action, both 1 + softplus(output)."""

    bounds: Bounds = static()
    log_std_size: int = static(default=0)

    @property
    def size(self) -> int:
        """Number of network outputs that the beta head takes: two for each element of the action."""
        return 2 * len(self.bounds.low)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Beta:
        """Return the beta distribution from `outputs` [size]; `log_std` and `action_mask` are not read."""
        dims = len(self.bounds.low)
        parameters = 1.0 + jax.nn.softplus(outputs)
        return Beta(parameters[..., :dims], parameters[..., dims:], *self.bounds)


@part
class JointHead:
    """Head of Dict spaces (with `names`, their keys) and Tuple spaces: one head for each component of the action."""

    heads: tuple[Head, ...] = dataclasses.field(metadata={"doc": ""})
    names: tuple[str, ...] | None = static(default=None)

    @property
    def size(self) -> int:
        """Number of network outputs that the joint head takes: the sum over the heads of its components."""
        return sum(head.size for head in self.heads)

    @property
    def log_std_size(self) -> int:
        """Number of log standard deviations that are free parameters: the sum over the heads of its components."""
        return sum(head.log_std_size for head in self.heads)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Joint:
        """Return the joint distribution from `outputs` [size] and `log_std` [log_std_size].

        The action mask is a dict or tuple like the action; that of a Dict space may omit components. Host environments
        give one vector with the masks of all components, one after the other; a Box, which has nothing to mask, has one
        entry.
        """
        flat = isinstance(action_mask, jax.Array | np.ndarray)
        given: Any = self._apart(action_mask) if flat else action_mask
        components, at, log_std_at = [], 0, 0
        for i, head in enumerate(self.heads):
            own = None if log_std is None else log_std[..., log_std_at : log_std_at + head.log_std_size]
            mask = given if given is None or self.names is None else given.get(self.names[i])
            mask = given[i] if given is not None and self.names is None else mask
            components.append(head(outputs[..., at : at + head.size], own, mask))
            at, log_std_at = at + head.size, log_std_at + head.log_std_size
        return Joint(tuple(components) if self.names is None else dict(zip(self.names, components, strict=True)))

    def _apart(self, flat: Any) -> dict[str, Array] | tuple[Array, ...]:
        """Return the components' masks in a dict or tuple, from one vector [n] that has them one after the other."""
        ends = np.cumsum([_mask_size(head) for head in self.heads])
        parts = tuple(flat[..., end - _mask_size(head) : end] for end, head in zip(ends, self.heads, strict=True))
        return parts if self.names is None else dict(zip(self.names, parts, strict=True))


def _mask_size(head: Head) -> int:
    """Return the number of entries that an action component has in a vector of all masks; 1 for a Box."""
    if isinstance(head, JointHead):
        return sum(map(_mask_size, head.heads))
    return head.size if isinstance(head, CategoricalHead | IndependentHead) else 1


LOG_STD_LIMITS = {"low": -40.0, "high": 40.0}  # so that the variance is a number of float32


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoxOptions:
    """Options of Box actions: arguments of `head_for`, and fields of every network that has a head of ppax."""

    log_std_init: float = static("initial log standard deviation of Box actions", default=0.0, **LOG_STD_LIMITS)
    distribution: str = static(
        "distribution of Box actions: normal (clipped to the box), squashed (tanh), beta, or ball (tanh of the norm); "
        "or the import path of a function action space -> head",
        default="normal",
        choices=FAMILIES,
        paths=True,
    )
    state_std: bool = static("state-dependent standard deviation of Box actions", default=False)
    std_min: float | None = static("lower bound of the standard deviation of Box actions", default=None, above=0.0)
    std_max: float | None = static("upper bound of the standard deviation of Box actions", default=None, above=0.0)
    ball_radius: float | None = static(
        "radius of distribution ball; by default half the width of the box", default=None, above=0.0
    )


BOX_DEFAULTS = {field.name: field.default for field in dataclasses.fields(BoxOptions)}


def head_for(space: spaces.Space, distribution: str = "normal", **box: Any) -> Head:
    """Return the head for an action space; a head makes the action distribution from the network's outputs.

    `distribution` and `box`, the other options of `BoxOptions`, apply to the Box spaces in it. Standard deviations
    begin at exp(log_std_init): the network initialises those that are parameters; with `state_std`, where they depend
    on the observation, the head adds an offset to the network's outputs. Raises ConfigError where an option is invalid.
    """
    options = BoxOptions(distribution=distribution, **box)
    if imports.is_path(distribution):
        return _own_head(space, options)
    _check(options)
    if not has_box(space):
        for name, default in BOX_DEFAULTS.items():
            if (value := getattr(options, name)) != default:
                raise ConfigError(f"{name} = {value!r}: an option of Box actions, and {space} has none; leave it out")
    return _head(space, options, "action space")


def require_features_for_noise(head: Head, gsde: bool) -> None:
    """Raise ConfigError if gSDE is on and `head` does not support its noise.

    The head must be that of one Box, with a distribution normal, squashed or ball, whose standard deviations do not
    depend on the state.
    """
    if not gsde:
        return
    given = "gsde = true"
    if not isinstance(head, NormalHead):
        raise ConfigError(
            f"{given}: gSDE is for one Box of actions with distribution normal, squashed or ball, not for a "
            f"{type(head).__name__}; leave it out"
        )
    if head.state_std:
        raise ConfigError(f"{given}: its standard deviation depends on the features already; set state_std to false")


def _own_head(space: spaces.Space, options: BoxOptions) -> Head:
    """Return the head that the user's function at the import path `options.distribution` makes for the action space.

    Raises ConfigError where the result is no head, or where other options are set.
    """
    text = f"network.distribution = {options.distribution!r}"
    for name, default in BOX_DEFAULTS.items():
        if name != "distribution" and (value := getattr(options, name)) != default:
            raise ConfigError(f"{name} = {value!r}: an option of the distributions of ppax; leave it out with {text}")
    make = imports.load(options.distribution, "network.distribution")
    if not callable(make) or isinstance(make, type):
        what = f"the class {make.__name__}" if isinstance(make, type) else f"a {type(make).__name__}"
        raise ConfigError(f"{text}: must be a function action space -> head, not {what}")
    try:
        head: Any = make(space)
    except Exception as error:
        raise ConfigError(f"{text}: has no head for {space}: {type(error).__name__}: {error}") from error
    if not callable(head) or any(name not in dir(head) for name in ("size", "log_std_size")):
        raise ConfigError(
            f"{text}: gives a {type(head).__name__}; must give a head, with size, log_std_size and a call"
        )
    return cast(Head, head)


def off_scale(head: Any) -> str:
    """Return, as text, the bounds of the first action element that a standard normal distribution explores badly.

    That is an element whose range is much wider or narrower than the distribution, or far from 0. The text is "" if
    there is no such element, and for heads of other distributions than `normal`.
    """
    if isinstance(head, JointHead):
        return next((found for one in head.heads if (found := off_scale(one))), "")
    if not isinstance(head, NormalHead) or head.family is not Normal:
        return ""
    centres, halves = centre_and_half(head.bounds.low, head.bounds.high)
    narrow, wide = HALF_WIDTHS
    missed = np.isfinite(halves) & (halves > 0.0)
    missed &= (halves < narrow) | (halves > wide) | (np.abs(centres) > FAR * halves)
    if not missed.any():
        return ""
    first = int(np.argmax(missed))
    return f"[{head.bounds.low[first]:g}, {head.bounds.high[first]:g}]"


def needs_squashing(space: spaces.Space) -> str:
    """Return, as text, the bounds of the first action element that `normal` explores badly, if `squashed` can be used.

    The text is "" if there is no such element, or if the space does not allow the distribution `squashed`.
    """
    try:
        found = off_scale(head_for(space))
        return found if found and head_for(space, "squashed") else ""
    except ConfigError:  # a space for which there is no such head
        return ""


def same_actions(head: Any, other: Any) -> bool:
    """Return True if two heads fit the same action space, whatever their distributions.

    A user's own head counts as fitting any space.
    """
    if isinstance(head, JointHead) and isinstance(other, JointHead):
        same_layout = head.names == other.names and len(head.heads) == len(other.heads)
        return same_layout and all(map(same_actions, head.heads, other.heads))
    return None in (layouts := (_action_layout(head), _action_layout(other))) or layouts[0] == layouts[1]


def _action_layout(head: Any) -> Any:
    """Return the sizes or bounds of a ppax head's actions, by which heads are compared; None for a user's own head."""
    if isinstance(head, CategoricalHead):
        return head.size, head.start
    if isinstance(head, IndependentHead):
        return head.counts, head.start, head.shape
    if isinstance(head, NormalHead | BetaHead):
        return head.bounds
    return "joint" if isinstance(head, JointHead) else None


def _check(options: BoxOptions) -> None:
    """Raise ConfigError for invalid options of Box actions, and for options without effect on the distribution."""
    family, low, high, radius = options.distribution, options.std_min, options.std_max, options.ball_radius
    if callable(family):
        path = imports.import_path(family)
        remedy = f"write its import path, {path!r}" if path else "put it into a module, and write its import path"
        raise ConfigError(f"distribution: a function; {remedy} (ppax.trust says that you trust its package)")
    if family not in FAMILIES:
        nearest = difflib.get_close_matches(str(family), FAMILIES, n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"distribution = {family!r}: must be one of {', '.join(FAMILIES)}; nearest: {nearest}; "
            "one of your own is the import path of a function action space -> head"
        )
    check_limits("log_std_init", options.log_std_init, LOG_STD_LIMITS)
    for name, value in (("std_min", low), ("std_max", high), ("ball_radius", radius)):
        if value is not None and not 0.0 < value < np.inf:
            raise ConfigError(f"{name} = {value}: must be above 0 and finite")
    if low is not None and high is not None and low >= high:
        raise ConfigError(f"std_min = {low}: must be below std_max = {high}")
    if family == "beta" and (options.state_std or low is not None or high is not None):
        raise ConfigError('distribution = "beta" has no standard deviation; leave out state_std, std_min and std_max')
    if family == "beta" and options.log_std_init != 0.0:
        given = f"log_std_init = {options.log_std_init}"
        raise ConfigError(f'{given}: distribution = "beta" has no standard deviation; nearest valid value: 0')
    if family != "ball" and radius is not None:
        raise ConfigError(f'ball_radius = {radius}: only distribution = "ball" has one, not {family!r}')


def has_box(space: spaces.Space) -> bool:
    """Return True if a space is a Box, or contains one."""
    if isinstance(space, spaces.Dict):
        return any(map(has_box, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return any(map(has_box, space.spaces))
    return isinstance(space, spaces.Box)


def box_size(space: spaces.Space) -> int:
    """Return the number of continuous actions in a space: the elements of all its Boxes; 0 if it has no Box."""
    if isinstance(space, spaces.Dict):
        return sum(map(box_size, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return sum(map(box_size, space.spaces))
    return math.prod(space.shape) if isinstance(space, spaces.Box) else 0


def _head(space: spaces.Space, options: BoxOptions, where: str) -> Head:
    """Return the head of a space, with the heads of the spaces inside it; `where` names the space in errors."""
    if isinstance(space, spaces.Discrete):
        require_32_bits(space, where)
        return CategoricalHead(size=int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        require_32_bits(space, where)
        counts, start = (tuple(int(x) for x in np.ravel(a)) for a in (space.nvec, space.start))
        return IndependentHead(counts=counts, start=start, shape=tuple(space.nvec.shape))
    if isinstance(space, spaces.MultiBinary):
        size = math.prod(space.shape)
        return IndependentHead(counts=(2,) * size, start=(0,) * size, shape=tuple(space.shape))
    if isinstance(space, spaces.Box):
        return _box_head(space, options, where)
    if isinstance(space, spaces.Dict) and space.spaces:
        names = tuple(sorted(space.spaces))  # as JAX sorts them
        return JointHead(tuple(_head(space[name], options, f"{where}[{name!r}]") for name in names), names)
    if isinstance(space, spaces.Tuple) and space.spaces:
        return JointHead(tuple(_head(one, options, f"{where}[{i}]") for i, one in enumerate(space.spaces)))
    raise ConfigError(
        f"{where} {space}: supported are Discrete, MultiDiscrete, MultiBinary, Box of floats, and Dict and Tuple of "
        "these; for another space write a network whose `decide` returns your own distribution"
    )


def _box_head(space: spaces.Box, options: BoxOptions, where: str) -> Head:
    family = options.distribution
    if not np.issubdtype(space.dtype, np.floating):
        raise ConfigError(
            f"{where} {space}: a Box of whole numbers; nearest valid space: MultiDiscrete(nvec, start=...)"
        )
    bounds = bounds_of(space)
    if any(low > high for low, high in zip(bounds.low, bounds.high, strict=True)):
        raise ConfigError(f"{where} {space}: no float32 number lies between two of its bounds")
    if not bounds.low:
        raise ConfigError(f"{where} {space}: it has no elements")
    if family in ("squashed", "beta"):
        for i, (low, high) in enumerate(zip(bounds.low, bounds.high, strict=True)):
            if not -np.inf < low < high < np.inf:
                raise ConfigError(
                    f'distribution = "{family}": {where} {space} has bounds {low} and {high} at element {i}, '
                    'which must be finite and different; nearest valid value: distribution = "normal"'
                )
    if family == "beta":
        return BetaHead(bounds)
    extra = (_radius(space, bounds, options.ball_radius, where),) if family == "ball" else ()
    make: Any = {"normal": Normal, "squashed": SquashedNormal, "ball": BallNormal}[family]
    return NormalHead(
        bounds=bounds,
        family=make,
        extra=extra,
        state_std=options.state_std,
        std_init=math.exp(options.log_std_init),
        std_min=options.std_min,
        std_max=options.std_max,
    )


def _radius(space: spaces.Box, bounds: Bounds, radius: float | None, where: str) -> float:
    """Return the radius of the ball of actions: `radius`, or if that is None half the width of the box.

    Raises ConfigError where the box has no middle, is not equally wide in all dimensions (if `radius` is None), or is
    narrower than the ball. `where` is the name of the space in the error.
    """
    halves = centre_and_half(bounds.low, bounds.high)[1]
    smallest, largest = float(halves.min()), float(halves.max())
    half_bounded = np.isinf(bounds.low) != np.isinf(bounds.high)
    if half_bounded.any() or smallest <= 0.0:
        raise ConfigError(
            f'distribution = "ball": {where} {space} has no middle; nearest valid value: distribution = "normal"'
        )
    if radius is None and not smallest == largest < np.inf:
        raise ConfigError(
            f'distribution = "ball": {where} {space} is not equally wide in every dimension; give '
            "ball_radius" + (f", at most {smallest:g}" if smallest < np.inf else "")
        )
    if radius is not None and radius > smallest:
        raise ConfigError(f"ball_radius = {radius}: at most {smallest:g} for {where} {space}")
    return smallest if radius is None else radius


def log_softplus(x: Array) -> Array:
    """Return log(log(1 + e^x)), stable for very negative x, where it equals x."""
    return jnp.where(x < -15.0, x, jnp.log(jax.nn.softplus(jnp.maximum(x, -15.0))))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def clip_inward(x: Array, low: float | None, high: float | None) -> Array:
    """Return `x` clipped to [low, high] (None: no bound), with a gradient that can bring it back inside the bounds.

    Beyond a bound the gradient passes where gradient descent moves `x` back inside, and is 0 otherwise.
    """
    return jnp.clip(x, low, high)


def _clip_inward_forward(x: Array, low: float | None, high: float | None) -> tuple[Array, Array]:
    return jnp.clip(x, low, high), x


def _clip_inward_backward(low: float | None, high: float | None, x: Array, gradient: Array) -> tuple[Array]:
    outwards = jnp.zeros(x.shape, bool)
    if low is not None:
        outwards |= (x < low) & (gradient > 0.0)
    if high is not None:
        outwards |= (x > high) & (gradient < 0.0)
    return (jnp.where(outwards, 0.0, gradient),)


clip_inward.defvjp(_clip_inward_forward, _clip_inward_backward)
