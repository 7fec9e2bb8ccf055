"""Parts: frozen dataclasses that are JAX pytrees. Each field is a leaf (traced) or static (compiled in)."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import sys
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

import jax

from ppax.core import unknown_names

T = TypeVar("T")
if TYPE_CHECKING:
    Interval = Any  # a number of iterations, or "50k steps" until the sizes of a run are known
    Code = Any  # a class, a function or an object; in run files its import path
else:
    Interval = int
    Code = str
# Kinds of fields that name something outside of a configuration: a file or directory that is read; a server, an
# account, a database or a cluster
PATH, ADDRESS = "path", "address"


class Table(dict[str, Any]):
    """Table of a run file whose keys the user chooses, such as the arguments of a class: a dict that can be hashed.

    Lists in it are tuples. A Table is the value of a static field, and must not be changed.
    """

    def __init__(self, values: Mapping[str, Any] = MappingProxyType({})):
        super().__init__({name: _hashable(x) for name, x in values.items()})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table) or not super().__eq__(other):
            return False
        return all(repr(x) == repr(other[name]) for name, x in self.items())  # 1, 1.0 and True differ

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self)))


def _hashable(value: Any) -> Any:
    """Return a value of a table with tuples in place of lists, and hashable tables in place of dicts."""
    if isinstance(value, Mapping):
        return Table(value)
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


class Held:
    """Wrapper of an object in a static field that can be neither hashed nor compared, such as a tree of arrays.

    Static fields must be hashable, for `jax.jit`. Two wrappers are equal if they hold the same object, and a wrapper's
    hash is the object's identity.
    """

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def number(doc: str = "", *, default: Any, anneal_to: str | None = None, **limits: float) -> Any:
    """Return the declaration of a field that holds a number of a formula: a traced leaf of its part's pytree.

    `jax.vmap` can sweep such a number, and a schedule can anneal it. `doc` is its description. `limits` are `low`,
    `high` (inclusive) and `above` (exclusive), which `options.py` checks. `anneal_to` names another field, with the
    value at the end of training, to which an agent's number is annealed linearly.
    """
    annealed = {} if anneal_to is None else {"anneal_to": anneal_to}
    return dataclasses.field(default=default, metadata={"doc": doc, **annealed, **limits})


def static(doc: str = "", *, default: Any = dataclasses.MISSING, **limits: Any) -> Any:
    """Return the declaration of a static field, a size or a choice. A new value compiles a new program.

    `limits` are `low`, `high` (inclusive) and `choices`, which `options.py` checks. Further entries: `none` is another
    spelling of None in run files; with `paths=True` an import path may replace a choice; `words` is a dict of words
    that may be written for a number, such as {"all": 0}; with `interval=True` the field is a number of iterations, for
    which a text such as "50k steps" may stand; with `bounds=True` it is a pair [low, high], for which a number x may
    stand as [-x, x]; with `switch=True` it is a number or a bool; `outside`, PATH or ADDRESS, says that the text names
    a file or a server, which a run file chooses only with the user's trust; `code=True` says that the field holds a
    class, a function or an object, which run files name by its import path; `convert` is a function that the
    constructor calls with the given value. A field of type `Table` is a table of run files whose keys the user chooses.
    """
    return dataclasses.field(default=default, metadata={"static": True, "doc": doc, **limits})


def slot(
    name: str, doc: str = "", *, default: Any = dataclasses.MISSING, first: Mapping[str, type] = MappingProxyType({})
) -> Any:
    """Return the declaration of a field that holds one part of the kind `name`, which a run file may choose.

    A part is a swappable piece, such as the loss of an agent. The choices are those of `first`, then those of
    `config.catalogue.PARTS[name]`. A run file that names no part takes the first choice. Without `default` the part
    must be passed in Python.
    """
    return dataclasses.field(default=default, metadata={"slot": name, "doc": doc, "first": first})


def slot_list(name: str, doc: str) -> Any:
    """Return the declaration of a field that holds a tuple of parts (swappable components) of the kind `name`.

    In a run file it is a list of tables, [[...]].
    """
    return dataclasses.field(default=(), metadata={"slot_list": name, "doc": doc})


def slot_table(name: str, doc: str) -> Any:
    """Return the declaration of a field that holds pairs (key, part of the kind `name`).

    A part is a swappable component, such as an agent's loss. In a run file the field is a table for each key.
    """
    return dataclasses.field(default=(), metadata={"static": True, "slot_table": name, "doc": doc})


def slot_chain(name: str, doc: str, *, default: tuple[Any, ...] = ()) -> Any:
    """Return the declaration of a field that holds a tuple of parts (swappable components) of the kind `name`.

    Their order matters. In a run file the field is a table for each part, by the part's name.
    """
    return dataclasses.field(default=default, metadata={"slot_chain": name, "doc": doc})


def name_of(one: Any) -> str:
    """Return the name of a part in a `slot_chain`: its field `name`, or if that is empty, its class's name.

    The name of the class KLControl becomes "kl_control".
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(one).__name__)
    return one.name or words.lower()


def slots(cls: type) -> dict[str, str]:
    """Return the fields of a part's class that hold one part (declared by `slot`), each with the kind of that part."""
    return _fields_with(cls, "slot")


def slot_chains(cls: type) -> dict[str, str]:
    """Return the fields of a part's class that hold parts in order (`slot_chain`), each with the kind of its parts."""
    return _fields_with(cls, "slot_chain")


def slot_tables(cls: type) -> dict[str, str]:
    """Return the fields of a part's class that hold parts by key (`slot_table`), each with the kind of its parts."""
    return _fields_with(cls, "slot_table")


def slot_lists(cls: type) -> dict[str, str]:
    """Return the fields of a part's class that hold lists of parts (`slot_list`), each with the kind of its parts."""
    return _fields_with(cls, "slot_list")


def _fields_with(cls: type, entry: str) -> dict[str, str]:
    """Return the fields of a dataclass whose metadata has the key `entry`, each with the value of that key."""
    return {field.name: field.metadata[entry] for field in dataclasses.fields(cls) if entry in field.metadata}


def _described(fields: tuple[dataclasses.Field[Any], ...]) -> list[str]:
    """Return lines with name, default, and description or type of each field, which `help` shows; [] without fields."""
    lines = []
    for field in fields:
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        lines.append(f"    {field.name}{default}: {field.metadata.get('doc') or f'of type {field.type}'}")
    return ["", "Fields:", *lines] if lines else []


def brief(tree: Any) -> str:
    """Return a short repr, `Class(field=value)`, with only the fields that differ from their defaults.

    Arrays are shown by dtype and shape, not by their values.
    """
    shown = [
        f"{field.name}={_short(getattr(tree, field.name))}"
        for field in dataclasses.fields(tree)
        if not (_derived(field) or _equal(getattr(tree, field.name), field.default))
    ]
    return f"{type(tree).__name__}({', '.join(shown)})"


def _derived(field: dataclasses.Field[Any]) -> bool:
    """Return whether a part's field is computed from the environment (True) or set by the user.

    A computed field has no default and no description.
    """
    given = field.metadata.get("doc") or "slot" in field.metadata or field.default is not dataclasses.MISSING
    return bool(field.metadata) and not given


def _short(value: Any) -> str:
    if dataclasses.is_dataclass(value) or callable(value):
        return getattr(value, "__name__", None) or repr(value)
    arrays = [x for x in jax.tree.leaves(value) if hasattr(x, "shape")]
    if arrays and value is not arrays[0]:
        return f"<{sum(math.prod(x.shape) for x in arrays):,} numbers in {len(arrays)} arrays>"
    if arrays:
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return repr(value)


def _equal(value: Any, default: Any) -> bool:
    try:
        return value is default or bool(value == default)
    except Exception:  # arrays, tracers
        return False


def _same(value: Any) -> Any:
    return value


def _explained(cls: type) -> Any:
    """Return a constructor for `cls` that raises a TypeError, with what to write instead, for an unknown option.

    The constructor also converts the values of fields that are declared with `convert`.
    """
    construct, fields = cls.__init__, dataclasses.fields(cls)  # type: ignore[misc,arg-type]
    known = [field.name for field in fields]
    by_position = [field.name for field in fields if not field.kw_only]
    converted = {field.name: field.metadata["convert"] for field in fields if "convert" in field.metadata}

    @functools.wraps(construct)
    def checked(self: Any, *values: Any, **options: Any) -> None:
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            raise TypeError(f"{cls.__name__} has no option {unknown}: {_remedy(cls, unknown)}")
        if converted:
            named = zip(by_position, values, strict=False)
            values = (*(converted.get(name, _same)(x) for name, x in named), *values[len(by_position) :])
            options = {name: converted.get(name, _same)(x) for name, x in options.items()}
        construct(self, *values, **options)

    return checked


def _remedy(cls: type, name: str) -> str:
    """Return what to write instead of `name`, which is no option of the class `cls`, for the error.

    If the default part of a field has the option, the text says to set it there, as in "write
    loss=ppax.losses.ClippedSurrogate(clip_eps=...)". Otherwise the text suggests an option of the same meaning in
    another library, or of similar spelling.
    """
    fields, row = dataclasses.fields(cls), unknown_names.meaning(name)
    wanted = row.name if row and row.option.startswith("agent.") else name
    for field in fields if wanted not in {field.name for field in fields} else ():
        kind = type(field.default)
        if dataclasses.is_dataclass(kind) and wanted in {inner.name for inner in dataclasses.fields(kind)}:
            return (
                f"write {field.name}={public_home(kind)}.{kind.__name__}({wanted}=...){row.difference if row else ''}"
            )
    return unknown_names.remedy(name, [field.name for field in fields])


def public_home(kind: type) -> str:
    """Return the module from which users import a class: `ppax.losses` for a class defined in ppax/ppo/losses.py."""
    outer, _, inner = kind.__module__.rpartition(".")
    homes = (f"ppax.{inner}", f"ppax.{outer.rpartition('.')[2]}", outer)
    found = (home for home in homes if getattr(sys.modules.get(home), kind.__name__, None) is kind)
    return next(found, kind.__module__)


@dataclass_transform(frozen_default=True, field_specifiers=(number, static, slot, slot_chain, dataclasses.field))
def part(cls: type[T]) -> type[T]:
    """Return `cls` as a frozen dataclass that is a JAX pytree: a class decorator for parts, the components of an agent.

    Fields are leaves or subtrees, unless declared `static()`.

    Two classes with the same fields have different tree structures, so that jit never runs the program of one for the
    other.
    """
    cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise dataclass writes the signature there
    own_repr = "__repr__" in vars(cls)
    frozen: Any = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)
    if not own_repr and any(not field.metadata or "slot" in field.metadata for field in fields):
        frozen.__repr__ = brief  # parts or arrays inside: the full repr would be pages long
    frozen.__doc__ = "\n".join([cls.__doc__, *_described(fields)])
    construct = frozen.__init__
    frozen.__init__ = _explained(frozen)
    leaves = [field.name for field in fields if not field.metadata.get("static")]
    statics = [field.name for field in fields if field.metadata.get("static")]

    # Not `register_dataclass`: there, trees of two classes with the same fields compare equal (seen in JAX 0.10 and
    # 0.11), so that jit may run the program of one part for another. Here the tree structure includes the class.
    def flatten(tree: Any) -> tuple[list[Any], Any]:
        return [getattr(tree, name) for name in leaves], (frozen, tuple(getattr(tree, name) for name in statics))

    def flatten_with_keys(tree: Any) -> tuple[list[Any], Any]:
        children, structure = flatten(tree)
        return [(jax.tree_util.GetAttrKey(name), x) for name, x in zip(leaves, children, strict=True)], structure

    def unflatten(structure: Any, children: Any) -> Any:
        tree = object.__new__(frozen)
        construct(tree, **dict(zip(leaves, children, strict=True)), **dict(zip(statics, structure[1], strict=True)))
        return tree

    jax.tree_util.register_pytree_with_keys(frozen, flatten_with_keys, unflatten, flatten)
    return typing.cast(type[T], frozen)
