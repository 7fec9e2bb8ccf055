"""Parts: frozen dataclasses that are JAX pytrees. A field is a leaf or it is static; there is no third kind."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def number(doc: str = "", *, default: Any, **limits: float) -> Any:
    """A leaf: a number in an equation, traced, so it can be swept by vmap and annealed by a schedule.

    `limits` are `low`, `high` (inclusive) and `above` (exclusive); config.py checks them.
    """
    return dataclasses.field(default=default, metadata={"doc": doc, **limits})


def static(doc: str = "", *, default: Any = dataclasses.MISSING, **limits: Any) -> Any:
    """A static field: a size or a choice, part of the program's identity; changing it recompiles.

    `limits` are `low`, `high` (inclusive) and `choices`; config.py checks them.
    """
    return dataclasses.field(default=default, metadata={"static": True, "doc": doc, **limits})


@dataclass_transform(frozen_default=True, field_specifiers=(number, static, dataclasses.field))
def part(cls: type[T]) -> type[T]:
    """A frozen dataclass that is a JAX pytree: fields are leaves or sub-trees, `static()` fields are not."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))
