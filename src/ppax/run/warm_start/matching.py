"""Comparison of two learners, array by array: which arrays of another run's learner fit this one.

Statistics are taken or left as wholes: the mean of one run with the variance of another would be neither's. So is each
extension, and an optimiser's state, and only with all weights that they belong to. Random keys are not compared: a run
has its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppax.core.types import LearnerState, PyTree
from ppax.ppo.normalization import is_stats

SAME, OTHER, ONLY_HERE, ONLY_THERE, BESIDE = "same", "differs", "only here", "only there", "beside one that differs"
# Fields with an optimiser's moments, and the fields of the weights that these are of; an extension may have some (PPG)
WEIGHTS = {"opt_state": ("params", "extensions"), "extensions": ("params",)}
ROWS = 40  # largest number of rows in a message
Names = dict[str, Any]


class Row(NamedTuple):
    """One array of the two learners."""

    path: str
    here: str  # dtype and shape in this run; "-" if it has no such array
    there: str  # the same in the other run
    verdict: str

    @property
    def taken(self) -> bool:
        """Whether this run starts with the other's array."""
        return self.verdict == SAME


def compare(learners: Mapping[str, LearnerState], there: Mapping[str, np.ndarray], keep: Collection[str]) -> list[Row]:
    """Compare the fields `keep` of learners by group ("" without groups; shapes suffice) with the arrays `there`."""
    rows: list[Row] = []
    known: list[str] = []  # names of fields, of all learners
    for group, learner in learners.items():
        known += [joined(group, field) for field in LearnerState._fields]
        left = {field for field in _with_weights({group: learner}) if field not in keep}
        kept = [field for field in LearnerState._fields if field in keep]
        # weights first: moments depend on them, those of the optimiser on the weights of extensions, too
        for field in sorted(kept, key=lambda field: len(WEIGHTS.get(field, ()))):
            usable, prefix = left.isdisjoint(WEIGHTS.get(field, ())), joined(group, field)
            rows_of = _of_extensions if field == "extensions" else partial(_of_field, field)
            own = list(rows_of(prefix, getattr(learner, field), there, usable))
            rows += own
            if not all(row.taken for row in own if field != "extensions" or _trained(row.path, prefix)):
                left.add(field)
    others = set(LearnerState._fields) - set(keep)
    unknown = [name for name in sorted(there) if not any(_below(name, prefix) for prefix in known)]
    strange = [name for name in unknown if not others & set(name.split("."))]
    return rows + [Row(name, "-", text(there[name]), ONLY_THERE) for name in strange]


def joined(*names: str) -> str:
    """Join the names that are not empty by dots."""
    return ".".join(filter(None, names))


def dotted(path: Any) -> str:
    """Path of a leaf as text."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def text(x: Any) -> str:
    """Type and shape of an array."""
    return f"{np.dtype(x.dtype).name}{list(x.shape)}"


def table(rows: Collection[Row]) -> str:
    """Rows as text, those that differ first."""
    ordered = sorted(rows, key=lambda row: row.taken)
    shown = [Row("array", "here", "there", ""), *ordered[:ROWS]]
    widths = [max(len(row[i]) for row in shown) for i in range(3)]
    lines = ["  " + "  ".join(x.ljust(n) for x, n in zip(row, [*widths, 0], strict=True)).rstrip() for row in shown]
    return "\n".join([*lines, *([f"  and {len(ordered) - ROWS} more"] if len(ordered) > ROWS else [])])


def _with_weights(learners: Mapping[str, LearnerState]) -> set[str]:
    """Names of the fields with parameters that the optimiser trains."""
    trains = any(jax.tree.leaves(one.params) for own in learners.values() for one in own.extensions.values())
    return {"params", "extensions"} if trains else {"params"}


def weights_missing(learners: Mapping[str, LearnerState], keep: Collection[str]) -> dict[str, list[str]]:
    """Fields of `keep` with moments of weights that are not in `keep`, and the fields that lack."""
    lacking = _with_weights(learners) - set(keep)
    missing = {field: [x for x in weights if x in lacking] for field, weights in WEIGHTS.items() if field in keep}
    return {field: names for field, names in missing.items() if names}


def _trained(path: str, prefix: str) -> bool:
    """Whether the array at `path` is of an extension's parameters, which the optimiser trains; `prefix` is of all."""
    return path.removeprefix(f"{prefix}.").split(".")[1:2] == ["params"]


def _of_extensions(
    prefix: str, states: Mapping[str, PyTree], there: Mapping[str, np.ndarray], usable: bool
) -> Iterator[Row]:
    """Yield the rows of a learner's extensions: each is taken or left as a whole."""
    for name, state in states.items():
        yield from _of_field("extension", joined(prefix, name), state, there, usable)
    others = (
        x for x in sorted(there) if _below(x, prefix) and not any(_below(x, f"{prefix}.{name}") for name in states)
    )
    yield from (Row(name, "-", text(there[name]), ONLY_THERE) for name in others)


def _of_field(field: str, prefix: str, tree: PyTree, there: Mapping[str, np.ndarray], usable: bool) -> Iterator[Row]:
    """Yield the rows of one field of a learner, or of one extension."""
    units = list(_units(prefix, tree, field))
    expected = {joined(prefix, dotted(path)) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]}
    extra = [name for name in sorted(there) if _below(name, prefix) and name not in expected]
    whole = field not in ("params", "obs_stats")
    for unit in units:
        verdicts = {name: _verdict(leaf, there.get(name)) for name, leaf in unit.items()}
        fits = usable and set(verdicts.values()) == {SAME} and not (whole and extra)
        for name, leaf in unit.items():
            verdict = BESIDE if verdicts[name] == SAME and not fits else verdicts[name]
            yield Row(name, text(leaf), text(there[name]) if name in there else "-", verdict)
    for name in extra:
        yield Row(name, "-", text(there[name]), ONLY_THERE)


def _units(prefix: str, tree: PyTree, field: str) -> Iterator[Names]:
    """Yield the leaves that are taken or left together, by name: each weight alone, statistics as wholes."""
    is_leaf = {"params": None, "obs_stats": is_stats}.get(field, lambda _: True)
    for path, node in jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)[0]:
        inner, _ = jax.tree_util.tree_flatten_with_path(node)
        unit = {joined(prefix, dotted(path), dotted(within)): leaf for within, leaf in inner if not _is_key(leaf)}
        if unit:
            yield unit


def _verdict(here: Any, there: np.ndarray | None) -> str:
    if there is None:
        return ONLY_HERE
    return SAME if here.shape == there.shape and here.dtype == there.dtype else OTHER


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def _below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")
