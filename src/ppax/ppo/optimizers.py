"""Optimisers as parts: functions learning rate -> optax.GradientTransformation, called anew in each gradient step.

The learning rate and all other numbers therefore stay traced, and the optimiser's state holds moments only. Where
`elementwise` is True, each parameter's update depends on that parameter alone: the transformation then gets all
parameters as one vector, which needs few operations; otherwise the parameter tree.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ppax.core.parts import slot
from ppax.core.protocols import Optimizer
from ppax.core.types import ConfigError, Params, PyTree, Scalar, number, part, static

__all__ = [
    "ActorCritic",
    "Adam",
    "Muon",
    "Optax",
    "clipped",
    "factory_of",
    "find_factory",
    "optax_class",
    "public_name",
]


def clipped(
    optimizer: Optimizer, learning_rate: Scalar, max_grad_norm: Scalar | None, num_epochs: int
) -> optax.GradientTransformationExtraArgs:
    """Return the transformation that clips gradients by their global norm and then takes `optimizer`'s steps.

    Its `update` takes the extra argument `epoch`, the number of the epoch. With `max_grad_norm` None nothing is
    clipped. Raises ConfigError if `optimizer` is an ActorCritic whose own clipping or epochs contradict `max_grad_norm`
    or `num_epochs`.
    """
    if isinstance(optimizer, ActorCritic):
        check_groups(optimizer, max_grad_norm, num_epochs)
    steps = optimizer(learning_rate)
    if max_grad_norm is not None:
        steps = optax.chain(optax.clip_by_global_norm(max_grad_norm), steps)
    return _keeping_dtypes(optax.with_extra_args_support(steps))


def _keeping_dtypes(steps: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """Return `steps`, whose new state has the dtypes of the state before, float32 in an agent.

    An option such as optax's `mu_dtype` rounds a moment to its dtype; the rounded numbers are stored in float32.
    """

    def update(gradient: Params, state: PyTree, params: Params | None = None, **extra: Any) -> Any:
        updates, after = steps.update(gradient, state, params, **extra)
        return updates, jax.tree.map(lambda x, old: x if x.dtype == old.dtype else x.astype(old.dtype), after, state)

    return optax.GradientTransformationExtraArgs(steps.init, update)


@part
class Adam:
    """Adam optimiser. Kingma and Ba 2015, https://arxiv.org/abs/1412.6980"""

    b1: Scalar = number("Adam beta1: decay rate of the mean gradient", default=0.9, low=0.0, high=1.0)
    b2: Scalar = number("Adam beta2: decay rate of the mean squared gradient", default=0.999, low=0.0, high=1.0)
    eps: Scalar = number("Adam epsilon: added to the root of the mean squared gradient", default=1e-5, above=0.0)

    elementwise: ClassVar[bool] = True  # works on the flattened parameter vector

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Return Adam as an optax transformation with this learning rate."""
        return optax.adam(learning_rate, b1=self.b1, b2=self.b2, eps=self.eps)


@part
class Muon:
    """Muon: momentum with orthogonalised updates of matrices. Jordan 2024, https://kellerjordan.github.io/posts/muon

    As `optax.contrib.muon`: parameters with two axes, those of first and last layers included, are updated with five
    Newton-Schulz steps; all others (biases, log standard deviations, convolutions) by Adam with Nesterov momentum.
    """

    beta: Scalar = number("decay rate of the momentum of matrices", default=0.95, low=0.0, high=1.0)
    weight_decay: Scalar = number("weight decay of matrices, per unit of learning rate", default=0.0, low=0.0)
    eps: Scalar = number("epsilon: added to denominators", default=1e-8, above=0.0)
    adam_scale: Scalar = number(
        "learning rate of Adam (parameters that are not matrices) over that of matrices", default=1.0, low=0.0
    )
    b1: Scalar = number("beta1 of Adam, for parameters that are not matrices", default=0.9, low=0.0, high=1.0)
    b2: Scalar = number("beta2 of Adam, for parameters that are not matrices", default=0.999, low=0.0, high=1.0)
    consistent_rms: Scalar | None = number(
        "root mean square of a matrix update over learning_rate; none: scale by sqrt(max(1, outputs / inputs))",
        default=None,
        above=0.0,
    )
    nesterov: bool = static("Nesterov momentum", default=True)

    elementwise: ClassVar[bool] = False

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Return Muon as an optax transformation with this learning rate."""
        return optax.contrib.muon(
            learning_rate,
            beta=self.beta,
            eps=self.eps,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            adam_b1=self.b1,
            adam_b2=self.b2,
            adam_learning_rate=learning_rate * self.adam_scale,
            consistent_rms=self.consistent_rms,
            muon_weight_dimension_numbers=_weight_matrices,
        )


def _weight_matrices(params: Params) -> Any:
    """Return for each parameter the axes of its matrix, or None, as `optax.contrib.muon` reads them.

    The log standard deviations of gSDE have two axes, too, but multiply nothing.
    """

    def one(path: Any, x: Array) -> Any:
        is_matrix = x.ndim == 2 and getattr(path[-1], "key", "") != "log_std"
        return optax.contrib.MuonDimensionNumbers() if is_matrix else None

    return jax.tree_util.tree_map_with_path(one, params)


@part
class ActorCritic:
    """Separate optimiser, learning rate, gradient clipping and number of epochs for actor and critic.

    Parameters belong to the actor or the critic by their top-level name. The agent's `max_grad_norm` clips the gradient
    of both together, even after one of them has finished its epochs; with None, each is clipped alone. After the last
    epoch of the actor or critic, its parameters and optimiser state do not change. An early stop by `target_kl` of the
    extension KLControl stops both, or the actor alone (`stops`). Raises ConfigError for networks whose actor and critic
    share parameters.
    """

    actor: Optimizer = slot("optimizer", "optimiser of the actor", default=Adam())
    critic: Optimizer = slot("optimizer", "optimiser of the critic", default=Adam())
    actor_scale: Scalar = number("ratio of the actor's learning rate to the agent's", default=1.0, low=0.0)
    critic_scale: Scalar = number("ratio of the critic's learning rate to the agent's", default=1.0, low=0.0)
    actor_max_grad_norm: Scalar | None = number(
        "gradient clipping of the actor: largest norm; none: off", default=None, above=0.0
    )
    critic_max_grad_norm: Scalar | None = number(
        "gradient clipping of the critic: largest norm; none: off", default=None, above=0.0
    )
    actor_epochs: int | None = static(
        "number of first epochs in which the actor learns; none: all num_epochs", default=None, low=1
    )
    critic_epochs: int | None = static(
        "number of first epochs in which the critic learns; none: all num_epochs", default=None, low=1
    )
    actor_keys: tuple[str, ...] = static(
        "top-level names of the actor's parameters; missing ones are ignored",
        default=("actor", "policy", "log_std", "extensions"),
    )
    critic_keys: tuple[str, ...] = static(
        "top-level names of the critic's parameters; all must exist", default=("critic", "value")
    )

    elementwise: ClassVar[bool] = False

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Return the optax transformation that updates actor and critic separately.

        `learning_rate` is the agent's; it is multiplied by `actor_scale` or `critic_scale`.
        """
        actor, critic = self.actor(learning_rate * self.actor_scale), self.critic(learning_rate * self.critic_scale)
        if self.actor_max_grad_norm is not None:
            actor = optax.chain(optax.clip_by_global_norm(self.actor_max_grad_norm), actor)
        if self.critic_max_grad_norm is not None:
            critic = optax.chain(optax.clip_by_global_norm(self.critic_max_grad_norm), critic)
        actor, critic = _first_epochs(actor, self.actor_epochs), _first_epochs(critic, self.critic_epochs)
        return optax.partition({"actor": actor, "critic": critic}, self._owners)

    def _owners(self, params: Params) -> dict[str, Any]:
        """Return "actor" or "critic" for each top-level name of `params`.

        Raises ConfigError if a name belongs to neither or to both, or if a name in `critic_keys` is missing.
        """
        names = tuple(params) if isinstance(params, dict) else ()
        missing = [key for key in self.critic_keys if key not in names]
        if missing:
            raise ConfigError(
                f"optimizer: the critic has no {_names(missing)} of its own among the parameters {_names(names)}; "
                "separate optimisers need separate networks: set network.shared = false, or optimizer.critic_keys"
            )
        unknown = [key for key in names if key not in self.actor_keys + self.critic_keys]
        if unknown:
            raise ConfigError(
                f"optimizer: the parameters {_names(unknown)} belong neither to the actor nor to the critic; "
                "name them in optimizer.actor_keys or optimizer.critic_keys"
            )
        both = [key for key in self.actor_keys if key in self.critic_keys]
        if both:
            raise ConfigError(
                f"optimizer: {_names(both)} is in actor_keys and in critic_keys; remove it from one of them"
            )
        return {key: "critic" if key in self.critic_keys else "actor" for key in names}


def _first_epochs(steps: optax.GradientTransformation, epochs: int | None) -> optax.GradientTransformation:
    """Return a transformation that equals `steps` in the first `epochs` epochs of an update, and then changes nothing.

    Afterwards parameter updates are 0, and the optimiser's state stays. With `epochs` None it is `steps` itself.
    """
    return steps if epochs is None else frozen_where(steps, lambda epoch: epoch >= epochs)


def frozen_where(steps: optax.GradientTransformation, frozen: Callable[[Any], Any]) -> optax.GradientTransformation:
    """Return a transformation that equals `steps`, but changes nothing in the gradient steps where `frozen` is True.

    In these steps parameter updates are 0, and the optimiser's state stays. `frozen` is a function of the number of the
    epoch.
    """
    active = optax.with_extra_args_support(steps)

    def update(gradient: Params, state: PyTree, params: Params | None = None, *, epoch: Any, **extra: Any) -> Any:
        after = active.update(gradient, state, params, epoch=epoch, **extra)
        kept = jax.tree.map(jnp.zeros_like, after[0]), state
        return jax.tree.map(partial(jnp.where, frozen(epoch)), kept, after)

    return optax.GradientTransformationExtraArgs(active.init, update)


def check_groups(optimizer: ActorCritic, max_grad_norm: Scalar | None, num_epochs: int) -> None:
    """Raise ConfigError if gradient clipping or epochs of actor and critic contradict those of the agent.

    `max_grad_norm` and `num_epochs` are the agent's. Either the agent clips gradients, or actor and critic do; and the
    larger of their two numbers of epochs must be `num_epochs`.
    """
    own = [name for name in ("actor_max_grad_norm", "critic_max_grad_norm") if getattr(optimizer, name) is not None]
    if own and max_grad_norm is not None:
        raise ConfigError(
            f"optimizer.{own[0]}: the agent's max_grad_norm would clip the gradient of both groups together first; "
            'write max_grad_norm = "none" in [agent] (--agent.max-grad-norm none; None in Python) to clip each alone'
        )
    actor, critic = optimizer.actor_epochs, optimizer.critic_epochs
    most = max(num_epochs if epochs is None else epochs for epochs in (actor, critic))
    if most != num_epochs:
        raise ConfigError(
            f"optimizer.actor_epochs = {_or_none(actor)} and critic_epochs = {_or_none(critic)}: the larger must be "
            f"num_epochs = {num_epochs}, also the meaning of none; nearest: num_epochs = {most}"
        )


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "(no dict)"


NAMESPACES = ("optax", "optax.contrib")  # public ones, by which a run file names a factory
RATE = "learning_rate"
# Names in optax of those with an update of each parameter that depends on that parameter alone
ELEMENTWISE = {
    *("adabelief", "adagrad", "adam", "adamax", "adamw", "adan", "lion"),
    *("nadam", "nadamw", "radam", "rmsprop", "rprop", "sgd", "yogi"),
}
SHAPES = ((5, 3), (7,))  # parameters with which an update is traced
Factory = Callable[..., optax.GradientTransformation]
_FACTORIES: dict[type, Factory] = {}  # factory by class


def Optax(factory: Factory, **options: Any) -> Any:  # noqa: N802  # as a class of parts
    """Return an optimiser for PPO made of an optax factory and its options, as `Optax(optax.lion, b1=0.9)`.

    The learning rate is an option of the agent. Raises ConfigError for a factory or an option that cannot be used.
    """
    cls: Any = optax_class(factory)
    name, known = _name_of(factory), [field.name for field in dataclasses.fields(cls)]
    for option, value in options.items():
        if option == RATE:
            raise ConfigError(f"{name}: {RATE} is a number of the agent: write ppax.PPO(..., {RATE}={value!r})")
        if option not in known:
            nearest = difflib.get_close_matches(option, known, n=1, cutoff=0.0)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else "; it has none"
            raise ConfigError(f"{name}: unknown option {option!r}{hint}")
        if option in _numbers(cls) and callable(value):
            raise ConfigError(
                f"{name}: {option} = {value!r}: must be a number; anneal it with "
                f'schedule=ppax.schedules.Linear(leaves=("optimizer.{option}",))'
            )
        if option not in _numbers(cls) and not isinstance(value, Hashable):
            raise ConfigError(
                f"{name}: {option}: must be hashable, as a function or a tuple; a {type(value).__name__} is not"
            )
    lacking = [option for option in known if option not in options and option in _required(cls)]
    if lacking:
        raise ConfigError(f"{name}: needs {', '.join(lacking)}: write Optax(factory, {lacking[0]}=...)")
    return cls(**options)


@functools.lru_cache(maxsize=256)
def optax_class(factory: Factory) -> type:
    """Return a class of PPO's optimisers, made of an optax factory such as `optax.lion`; its options become fields.

    The class is a part (a swappable frozen dataclass). Raises ConfigError unless PPO can call the factory with a traced
    learning rate.
    """
    name = _name_of(factory)
    options = _options_of(factory, name)
    required = [option for option, given in options.items() if given.default is inspect.Parameter.empty]
    untraced: set[str] = set()
    if not required:
        floats = {option: given.default for option, given in options.items() if isinstance(given.default, float)}
        untraced = _untraced(factory, floats, name)
    fields = {option: _field(given, option in untraced, _doc(factory, option)) for option, given in options.items()}
    ordered = required + [option for option in options if option not in required]

    namespace = {option: field for option, (_, field) in fields.items()}
    namespace |= {"__annotations__": {option: fields[option][0] for option in ordered}, "__call__": _call}
    namespace |= {"elementwise": property(_elementwise), "__reduce__": _reduce}
    namespace |= {"__doc__": f"Optimiser {name}.", "__module__": __name__}
    cls: Any = part(type(name.rpartition(":")[2], (), namespace))
    _FACTORIES[cls] = factory
    return cls


def _call(self: Any, learning_rate: Scalar) -> optax.GradientTransformation:
    """Return the optax transformation with this learning rate and the options of `self`.

    `self` is a part (a swappable frozen dataclass) that wraps an optax factory.
    """
    factory = _FACTORIES[type(self)]
    try:
        return factory(learning_rate, **_given(self))
    except (ValueError, TypeError, AssertionError) as error:
        raise ConfigError(f"optimizer: {_name_of(factory)}: {error}") from error


def _elementwise(self: Any) -> bool:
    """Return True if the optimiser `self` updates each parameter by its own gradient alone, as Adam does.

    `self` is a part (a swappable frozen dataclass) that wraps an optax factory.
    """
    functions = [value for option, value in _given(self).items() if callable(value)]
    return public_name(_FACTORIES[type(self)]) in {f"optax:{name}" for name in ELEMENTWISE} and not functions


def _reduce(self: Any) -> Any:
    factory = _FACTORIES[type(self)]
    # by its name: optax.nadam is a partial, and a copy of a partial would be another factory
    return functools.partial(_restored, public_name(factory) or factory, **_given(self)), ()


def _restored(factory: Factory | str, /, **options: Any) -> Any:
    return Optax(find_factory(factory, "optimizer") if isinstance(factory, str) else factory, **options)


def _given(self: Any) -> dict[str, Any]:
    return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def factory_of(cls: type) -> Factory | None:
    """Return the optax factory from which `optax_class` has made the class `cls`; None for other classes."""
    return _FACTORIES.get(cls)


def public_name(factory: Factory) -> str | None:
    """Return the name that a run file has for a factory of optax, such as "optax:lion"; None for other functions."""
    names = (f"{space}:{name}" for space in NAMESPACES for name, known in _factories(space).items() if known is factory)
    return next(names, None)


def find_factory(path: str, place: str) -> Factory:
    """Return the factory of optax at an import path such as "optax:lion"; ConfigError where there is none.

    The error names the option `place`, whose value `path` is, and the nearest path that exists. Only public functions
    of optax that take a learning rate are found.
    """
    module, _, name = path.partition(":")
    spaces = {space: _factories(space) for space in NAMESPACES}
    if name in spaces.get(module, {}):
        return spaces[module][name]
    known = [f"{space}:{one}" for space, names in spaces.items() for one in names]
    nearest = difflib.get_close_matches(path, known, n=1, cutoff=0.0)[0]
    raise ConfigError(
        f"{place} = {path!r}: must be a factory of optax, which takes a {RATE}; did you mean {nearest!r}?"
    )


def _factories(space: str) -> dict[str, Factory]:
    module = optax if space == "optax" else optax.contrib
    made = (types.FunctionType, functools.partial)  # optax.nadam is a partial of optax.adam
    functions = {name: x for name, x in vars(module).items() if isinstance(x, made)}
    return {name: x for name, x in functions.items() if RATE in inspect.signature(x).parameters and name[0] != "_"}


def _name_of(factory: Factory) -> str:
    """Return a factory's name for messages: "optax:lion" for a factory of optax, otherwise "module:name"."""
    return public_name(factory) or f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', factory)}"


def _options_of(factory: Factory, name: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of an optax factory, without its learning rate, by name.

    Raises ConfigError for anything but a function whose first argument is `learning_rate`. `name` is the factory's name
    in messages.
    """
    remedy = "must be a function learning rate, options -> optax.GradientTransformation, as optax.lion"
    if not isinstance(factory, types.FunctionType) and public_name(factory) is None:
        raise ConfigError(f"optimizer: {factory!r}: {remedy}")
    given = inspect.signature(factory).parameters
    if next(iter(given), None) != RATE or any(
        one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in given.values()
    ):
        raise ConfigError(f"optimizer: {name}({', '.join(given)}): {remedy}, whose first argument is {RATE}")
    return {option: one for option, one in given.items() if option != RATE}


def _trace_update(factory: Factory, traced: tuple[str, ...]) -> None:
    """Check that JAX can trace one update of an optimiser made by `factory`: raise what the factory raises.

    The learning rate and the options named in `traced` are tracers.
    """
    params = {str(i): jax.ShapeDtypeStruct(shape, jnp.float32) for i, shape in enumerate(SHAPES)}

    def update(rate: Any, numbers: Any, params: Any) -> Any:
        steps = optax.with_extra_args_support(factory(rate, **numbers))
        return steps.update(params, steps.init(params), params)

    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    jax.eval_shape(update, scalar, dict.fromkeys(traced, scalar), params)


def _untraced(factory: Factory, floats: dict[str, float], name: str) -> set[str]:
    """Return those of the options `floats` that JAX cannot trace, which must be known when a program is compiled.

    Raises ConfigError where no update can be traced. `name` is the factory's in messages.
    """
    try:
        _trace_update(factory, ())
    except Exception as error:  # any exception of the factory, as for a missing argument of its update
        raise ConfigError(_unusable(name, error)) from error

    def fails(options: tuple[str, ...]) -> bool:
        try:
            _trace_update(factory, options)
        except Exception:  # as above
            return True
        return False

    return {option for option in floats if fails((option,))} if fails(tuple(floats)) else set()


def _field(given: inspect.Parameter, untraced: bool, doc: str) -> tuple[Any, Any]:
    """Return type and dataclass field of an optimiser's option, made from the parameter `given` of an optax factory.

    Type and field follow from the parameter's default and annotation. If `untraced`, a number becomes a static field,
    because JAX cannot trace it; `doc` is the description of the option.
    """
    default, empty = given.default, inspect.Parameter.empty
    kinds = _kinds(given.annotation)
    if isinstance(default, bool | int | str):
        return type(default), static(doc, default=default)
    if isinstance(default, float):
        return (float, static(doc, default=default)) if untraced else (Scalar, number(doc, default=default))
    if default is None and float in kinds:
        return Scalar | None, number(doc, default=None)
    if default is None and kinds == {int, types.NoneType}:
        return int | None, static(doc, default=None)
    if isinstance(default, tuple) and all(isinstance(x, float) for x in default):
        return tuple[float, ...], static(doc, default=default)
    return Any, static(doc) if default is empty else static(doc, default=default)


def _kinds(annotation: Any) -> set[Any]:
    """Return the types in an annotation: the members of a union, or the type itself; for anything else an empty set."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return {inner for one in typing.get_args(annotation) for inner in _kinds(one)}
    return {annotation} if isinstance(annotation, type) else set()


def _doc(factory: Factory, option: str) -> str:
    """Return the description of an option: its first sentence in the docstring of `factory`.

    If there is none, it is "option OPTION of FACTORY".
    """
    documented = factory.func if isinstance(factory, functools.partial) else factory
    found = re.search(rf"\n +{option}: (.*?)(?=\n +\w+: |\n\n|$)", inspect.getdoc(documented) or "", re.DOTALL)
    text = " ".join(found.group(1).split()) if found else ""
    return text.partition(". ")[0].rstrip(".") or f"option {option} of {documented.__name__}"


def _numbers(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls) if not field.metadata.get("static")}


def _required(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}


def _unusable(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200]
    return (
        f"optimizer: {name} cannot be used with these options: its update must work with gradient and parameters "
        f"alone, and with a traced learning rate, which PPO anneals; it raised {type(error).__name__}: {reason}"
    )
