"""Conversion of a run's weights and statistics for a warm start with other observations or actions.

The source run is the run of `init_from`, whose weights are taken. Numbers of an observation that the source run did not
have get weight 0, so that the policy acts as before until it learns to use them. The logit of a new discrete action is
the mean of the old actions' logits, minus a constant, which bounds the probability of new actions in every state.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from ppax.config import InitFrom
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, LearnerState
from ppax.distributions import BallNormal
from ppax.networks.composed import Composed, Torso
from ppax.networks.encoders import EntryReader, Flat, readers
from ppax.networks.heads import BetaHead, CategoricalHead, Head, NormalHead
from ppax.networks.observations import Entry, entries, select
from ppax.policy.spec import PolicySpec
from ppax.ppo.normalization import NoStats, PartStats, is_stats

OBSERVATIONS, ACTIONS = "init_from.observations", "init_from.actions"
PIECE = re.compile(r"(?P<first>\d+)(?::(?P<end>\d+))?|new(?::(?P<count>\d+))?")
Arrays = dict[str, np.ndarray]  # of a learner, by dotted name


class EntryOrigin(NamedTuple):
    """Origin of one entry (array) of this run's observation: which numbers of the source run's observation it takes.

    The source run is that of `init_from`, and `entry` is the name of the source run's entry. `places` [size] has, for
    each number of this run's entry, its index in the source run's entry, both flattened; -1 for a new number. `whole`
    is True if the two entries have the same numbers in the same order and shape.
    """

    entry: str | None  # name of the other run's entry; None: all numbers are new
    places: np.ndarray  # [size] place in the other run's entry, flattened; -1: a new number
    whole: bool  # the other run's entry in its shape, unchanged


class Changed(NamedTuple):
    """Arrays of the source run's learner (`init_from`), changed to fit the spaces of this run.

    `fresh` has the names of arrays that keep this run's initial values, and `text` says what is taken and what is new.
    """

    arrays: Arrays
    fresh: frozenset[str]  # names of arrays that keep the initial values of this run: encoders of new images
    text: str  # what is taken and what is new


def require_changeable(agent: Agent, settings: InitFrom, groups: Mapping[str, LearnerState]) -> None:
    """Raise ConfigError where a warm start with other observations or actions is impossible for this agent.

    `groups` are this run's learners by group.
    """
    if not settings.observations and not settings.actions:
        return
    field = OBSERVATIONS if settings.observations else ACTIONS
    if set(groups) != {""}:
        raise ConfigError(f"{field}: groups have a network each, with spaces of its own; leave it out with groups")
    if "params" not in settings.keep:
        raise ConfigError(f"{field}: changes weights, and init_from.keep lacks them; add params")
    for name in ("opt_state", "extensions"):
        if name in settings.keep:
            raise ConfigError(
                f"{field}: {name} of the other run belong to its own spaces; leave {name} out of init_from.keep"
            )
    network = agent.learners(1)[0][0].network
    if not isinstance(network, Composed):
        raise ConfigError(
            f"{field}: a {type(network).__name__} has layers of its own, and only those of the network "
            '"composed" (ppax.networks.network) are known; leave it out'
        )


def change_spaces(
    agent: Agent, learner: LearnerState, arrays: Arrays, spec: PolicySpec | None, settings: InitFrom
) -> Changed:
    """Return `arrays`, those of the learner of the source run (`init_from`), in the shapes of this run's `learner`.

    `settings` say which numbers of observations and which actions are taken. Shapes in place of the arrays of `learner`
    suffice. `spec` describes the policy of the source run; None if that run is given as a TrainState, which has no
    description. `arrays` itself is not changed. Raises ConfigError where `settings` do not fit the spaces, or where the
    network cannot be changed.
    """
    network: Composed = agent.learners(1)[0][0].network
    changed, fresh, texts = dict(arrays), set[str](), list[str]()
    if settings.observations:
        here = _entries_of(network)
        there = _entries_there(network, arrays, spec)
        origins = read_origins(settings.observations, here, there)
        for name, torso in network.torsos().items():
            fresh |= _change_torso(changed, name, network, torso, origins, _visible(network, name, there, spec))
        _change_statistics(changed, arrays, learner.obs_stats, origins, there)
        new = sum(int((one.places < 0).sum()) for one in origins.values())
        total = sum(one.places.size for one in origins.values())
        used = {(one.entry, i) for one in origins.values() for i in one.places if i >= 0}
        dropped = sum(math.prod(one.shape) for one in there.values()) - len(used)
        texts.append(f"observations: {total - new} of {total} numbers taken, {new} new, {dropped} dropped")
    if settings.actions:
        texts.append(_change_actions(changed, network, settings))
    return Changed(changed, frozenset(fresh), "; ".join(texts))


# ---------------------------------------------------------------- which number comes from where


def read_origins(items: Sequence[str], here: Mapping[str, Entry], there: Mapping[str, Entry]) -> dict[str, EntryOrigin]:
    """Return, by name, which numbers of the source run's observation each entry (array) of this run's takes.

    The source run is that of `init_from`. An item of `init_from.observations` is a text such as "position=0:4" or
    "goal=new". `here` and `there` are the entries of this run's observation and of the source run's, by name. Raises
    ConfigError where the items do not fit the entries.
    """
    single = list(here) == ["obs"]
    pieces: dict[str, list[str]] = {}
    for item in items:
        name, equals, piece = item.partition("=")
        if not equals and single:
            name, piece = "obs", item
        elif not equals:
            piece = name
        if name not in here:
            _refuse(item, f"this observation has no entry {name!r}; there are {', '.join(here)}", name, here)
        pieces.setdefault(name, []).append(piece)
    origins = {name: _origin(entry, pieces.get(name), there) for name, entry in here.items()}
    users: dict[tuple[str, int], str] = {}
    for name, origin in origins.items():
        for i in (int(x) for x in origin.places if x >= 0):
            if (origin.entry, i) in users:  # two copies of its weights would count it twice
                raise ConfigError(
                    f"{OBSERVATIONS}: number {i} of {origin.entry} is taken twice; take it once, else new"
                )
            users[str(origin.entry), i] = name
    return origins


def _origin(entry: Entry, pieces: list[str] | None, there: Mapping[str, Entry]) -> EntryOrigin:
    """Return which numbers of the source run's observation `entry`, an array of this run's observation, takes.

    The source run is that of `init_from`. `pieces` are the texts that choose its numbers, such as ["0:4", "new"]; if
    `pieces` is None, the source run's entry of the same name is taken unchanged. `there` are the source run's entries
    by name.
    """
    size = math.prod(entry.shape)
    if pieces == ["new"]:
        return EntryOrigin(None, np.full(size, -1), False)
    if pieces is None or (len(pieces) == 1 and not PIECE.fullmatch(pieces[0])):
        name = entry.name if pieces is None else pieces[0]
        old = there.get(name)
        if old is None:
            missing = f"the other run's observation has no entry {name!r}; there are {', '.join(there)}"
            _refuse(f"{entry.name}={name}", f"{missing}; a new one is {entry.name}=new", name, there)
        if (old.shape, old.categories) != (entry.shape, entry.categories):
            both = min(size, math.prod(old.shape))
            rest = f" {entry.name}=new:{size - both}" if size > both else ""
            raise ConfigError(
                f"{OBSERVATIONS}: entry {entry.name} is {list(entry.shape)} here and {old.name} {list(old.shape)} in "
                f"the other run: say which number comes from where, as {entry.name}=0:{both}{rest}"
            )
        return EntryOrigin(old.name, np.arange(size), True)
    old = there.get(entry.name)
    if old is None:
        _refuse(
            f"{entry.name}={pieces[0]}", f"the other run's observation has no entry {entry.name!r}", entry.name, there
        )
    index = read_pieces(OBSERVATIONS, pieces, math.prod(old.shape), size)
    return EntryOrigin(old.name, index, old.shape == entry.shape and np.array_equal(index, np.arange(size)))


def read_pieces(field: str, pieces: Sequence[str], old: int, new: int) -> np.ndarray:
    """Return [new] indices: for each of `new` numbers its index among `old` numbers, or -1 if it is not among them.

    `pieces` are texts such as "0:4" (the old numbers 0 to 3) and "new" (one number that is not among the old ones).
    Raises ConfigError, with the option's name `field`, for pieces that do not fit.
    """
    index: list[int] = []
    for piece in pieces:
        found = PIECE.fullmatch(piece)
        if found is None:
            raise ConfigError(f'{field} = {piece!r}: must be a place, as "3", places, as "0:4", "new", or "new:3"')
        if found["first"] is None:
            index += [-1] * int(found["count"] or 1)
            continue
        first = int(found["first"])
        end = first + 1 if found["end"] is None else int(found["end"])
        if not first < end <= old:
            nearest = f"{min(first, old - 1)}" + ("" if found["end"] is None else f":{old}")
            raise ConfigError(
                f"{field} = {piece!r}: the other run has {old}, numbered from 0 to {old - 1}; nearest valid value: "
                f"{nearest}"
            )
        index += range(first, end)
    if len(index) != new:
        nearest = f"; nearest valid value: one more piece, new:{new - len(index)}" if len(index) < new else ""
        raise ConfigError(f"{field} = [{', '.join(pieces)}]: says {len(index)}, and this run has {new}{nearest}")
    return np.array(index)


def _refuse(item: str, reason: str, name: str, names: Mapping[str, Entry]) -> NoReturn:
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise ConfigError(f"{OBSERVATIONS} = {item!r}: {reason}; nearest: {nearest}")


def _entries_of(network: Composed) -> dict[str, Entry]:
    """Return the entries of an observation that actor and critic read, by name."""
    return {entry.name: entry for one in (*network.actor_readers, *network.critic_readers) for entry in one.entries}


def _entries_there(network: Composed, arrays: Arrays, spec: PolicySpec | None) -> dict[str, Entry]:
    """Return the entries (arrays) of the observation of the source run of a warm start, by name.

    Without `spec` (None) they are inferred from the size of the first layer in `arrays`: a single entry, "obs". Raises
    ConfigError where this is impossible.
    """
    if spec is not None:
        return {entry.name: entry for entry in entries(spec.observation_space)}
    if list(_entries_of(network)) != ["obs"]:
        raise ConfigError(
            f"{OBSERVATIONS}: a TrainState does not say which entries its observations had; start from a run directory "
            "or from the TrainedRun of ppax.fit"
        )
    kernel = arrays.get("params.actor.0.kernel")
    if kernel is None:
        raise ConfigError(f"{OBSERVATIONS}: the other run's network has no linear first layer, params.actor.0.kernel")
    return {"obs": Entry((), (kernel.shape[-2],))}


# ---------------------------------------------------------------- weights and statistics


def _visible(
    network: Composed, name: str, there: Mapping[str, Entry], spec: PolicySpec | None
) -> tuple[EntryReader, ...]:
    """Return the encoders of actor or critic (`name`) of the source run (`init_from`), with the entries they read.

    They are the encoders that a network like `network` makes for the source run's observation, whose entries are
    `there`, by name. `spec` describes the source run's policy, and so which entries actor and critic read; None: all.
    """
    available = tuple(there.values())
    if spec is not None:
        chosen = spec.config.get("agent", {}).get("network", {}).get(f"{name}_obs") or ()
        chosen = chosen or (spec.actor_obs if name == "actor" else ())
        available = select(available, tuple(chosen), f"{name}_obs")
    tower = getattr(network, name)
    encoders = tower.option("encoders", network)
    known = tuple(pair for pair in encoders if pair[0] in {entry.name for entry in available})
    return readers(tower.option("encoder", network), known, available)


def _change_torso(
    arrays: Arrays,
    name: str,
    network: Composed,
    torso: Torso,
    origins: Mapping[str, EntryOrigin],
    before: tuple[EntryReader, ...],
) -> set[str]:
    """Change `arrays` so that the first layer and the encoders of actor or critic (`name`) fit this run's observation.

    `arrays` are those of the source run (`init_from`) by name; `origins` say, for each entry of this run's observation,
    which of the source run's numbers it takes. Arrays of encoders get the names of this run's encoders. `before` are
    the encoders of the source run. Returns the names of the arrays of new encoders, which are not in `arrays`.
    """
    path, size_in = f"params.{name}.0.kernel", sum(reader.size() for reader in torso.readers)
    if not torso.hidden:
        raise ConfigError(
            f"{OBSERVATIONS}: network.hidden = [] leaves the {name} no linear first layer, which is the one that is "
            "changed; the other run needs one, as hidden = [64]"
        )
    offsets, end = {}, 0
    for reader in before:
        offsets[reader.name] = end
        end += reader.size()
    kernel = arrays.get(path)
    if kernel is None or kernel.shape[-2] != end:
        rows = "no such array" if kernel is None else f"{kernel.shape[-2]} rows"
        raise ConfigError(
            f"{OBSERVATIONS}: {path} of the other run has {rows}, and its observations, read by this run's encoders, "
            f"have {end} numbers; give this run the encoders of that one"
        )
    if torso.residual and torso.hidden[0] in (size_in, end):
        raise ConfigError(
            f"{OBSERVATIONS}: network.residual = true adds the observation to the output of a first layer of as many "
            f"numbers, {torso.hidden[0]}: another observation would change what the policy does"
        )
    encoders = f"params.{name}.encoder."
    old = {key: arrays.pop(key) for key in [key for key in arrays if key.startswith(encoders)]}
    kept, fresh = list[np.ndarray](), set[str]()
    params = jax.eval_shape(torso.init, jax.random.key(0)).get("encoder", {})
    for reader in torso.readers:
        own = [f"{encoders}{reader.name}{_dotted(at)}" for at in _paths(params.get(reader.name, {}))]
        origin = _origin_of_reader(reader, origins)
        source = reader.name if len(reader.entries) > 1 else origin.entry
        if source is None or source not in offsets:  # new, or not seen by this torso of the other run
            kept.append(np.full(reader.size(), -1))
            fresh |= set(own)
            continue
        index = origin.places if isinstance(reader.encoder, Flat) else np.arange(reader.size())
        kept.append(np.where(index < 0, -1, offsets[source] + index))
        for array in own:
            there = f"{encoders}{source}" + array.removeprefix(f"{encoders}{reader.name}")
            if there in old:
                arrays[array] = old[there]
    arrays[path] = _take(kernel, np.concatenate(kept), -2, 0.0)
    return fresh


def _origin_of_reader(reader: EntryReader, origins: Mapping[str, EntryOrigin]) -> EntryOrigin:
    """Return the origin of the entry that the encoder of `reader` reads: which of the source run's numbers it takes.

    The encoder `Flat` passes on an entry's numbers as they are, so that each number has weights of its own in the next
    layer, and any numbers may be taken. The weights of all other encoders are not those of single numbers: ConfigError
    if such an encoder reads one entry that is neither taken unchanged nor new as a whole, or several entries of which
    one is not taken unchanged. For several entries the origin returned has no name and no indices.
    """
    found = [origins[entry.name] for entry in reader.entries]
    if isinstance(reader.encoder, Flat):
        return found[0]
    if len(found) == 1 and (found[0].whole or found[0].entry is None):
        return found[0]
    changed = [e.name for e, o in zip(reader.entries, found, strict=True) if not o.whole or o.entry != e.name]
    if changed:
        raise ConfigError(
            f"{OBSERVATIONS}: {', '.join(changed)} is read by {type(reader.encoder).__name__}, whose weights are not "
            "those of single numbers: such an entry can be kept whole, or, with an encoder of its own, be new"
        )
    return EntryOrigin(None, np.empty(0), True)


def _change_statistics(
    arrays: Arrays, before: Arrays, stats: Any, origins: Mapping[str, EntryOrigin], there: Mapping[str, Entry]
) -> None:
    """Change the statistics of observations in `arrays` to fit this run; new numbers have mean 0 and variance 1.

    `before` are the arrays as they were in the source run (`init_from`), and `there` the entries of its observation;
    `origins` say which of its numbers each entry of this run's observation takes. `stats` are this run's statistics or
    their shapes. Numbers of one array share one count of observations. New numbers in an array with old ones take over
    its count; an array of new numbers alone begins with count 0.
    """
    if stats is None or not any(name.startswith("obs_stats.") for name in before):
        return  # one of the runs does not normalise, which the comparison reports
    nodes = jax.tree_util.tree_flatten_with_path(stats, is_leaf=is_stats)[0]
    if any(isinstance(node, PartStats) for _, node in nodes) or any(name.endswith(".kept") for name in before):
        raise ConfigError(
            f"{OBSERVATIONS}: agent.normalization.skip leaves out single numbers of an array, whose statistics cannot "
            "be matched with those of other numbers; nearest valid value: a skip of whole entries of a Dict, or none"
        )
    for name in [name for name in arrays if name.startswith("obs_stats.")]:
        del arrays[name]
    for path, node in nodes:
        own = f"obs_stats{_dotted(path)}"
        name = _dotted(path).removeprefix(".") or "obs"
        origin = origins.get(name, EntryOrigin(name, np.arange(0), True))  # read by no network: unchanged
        entry = there.get(origin.entry) if origin.entry is not None else None
        old = "" if entry is None else ".".join(("obs_stats", *map(str, entry.path)))
        known = f"{old}.count" in before
        if isinstance(node, NoStats):
            if known:  # normalised there alone, which the comparison reports
                arrays[f"{own}.count"] = before[f"{old}.count"]
            continue
        if not known and entry is not None:
            continue  # normalised here alone, which the comparison reports
        if not known:
            arrays |= {f"{own}.{field}": np.zeros(shape, dtype) for field, shape, dtype in _fields(node)}
            arrays[f"{own}.var.high"] += 1.0
            continue
        for field, shape, _ in _fields(node):
            values = before[f"{old}.{field}"]
            if field != "count" and not origin.whole:
                rows = values.reshape(*node.count.shape[:-1], -1)  # [A, size] of independent players
                values = _take(rows, origin.places, -1, float(field == "var.high")).reshape(shape)
            arrays[f"{own}.{field}"] = values


def _fields(node: Any) -> list[tuple[str, tuple[int, ...], Any]]:
    """Return name, shape and dtype of each array in `node`, the statistics of one array of observations."""
    return [
        (_dotted(path).removeprefix("."), x.shape, x.dtype) for path, x in jax.tree_util.tree_leaves_with_path(node)
    ]


def _change_actions(arrays: Arrays, network: Composed, settings: InitFrom) -> str:
    """Change the last layer of the policy in `arrays` for other actions, and return a text on the change.

    The text counts the actions that are taken over, new and dropped.
    """
    head: Head = network.head
    kernel, bias = arrays.get("params.policy.kernel"), arrays.get("params.policy.bias")
    if kernel is None or bias is None:
        raise ConfigError(f"{ACTIONS}: the other run's network has no array params.policy.kernel")
    if isinstance(head, CategoricalHead):
        blocks, count = 1, head.size
    elif isinstance(head, BetaHead | NormalHead) and getattr(head, "family", None) is not BallNormal:
        count = len(head.bounds.low)
        blocks = head.size // count
    else:
        raise ConfigError(
            f"{ACTIONS}: is for one Discrete space, or one Box with distribution normal, squashed or beta; this policy "
            f"has {'a ball of actions' if isinstance(head, NormalHead) else f'a {type(head).__name__}'}; leave it out"
        )
    old = bias.shape[-1] // blocks
    index = read_pieces(ACTIONS, settings.actions, old, count)
    taken = index[index >= 0]
    if len(set(taken.tolist())) < len(taken) or not len(taken):
        what = "takes an action twice" if len(taken) else "takes no action of the other run"
        raise ConfigError(f"{ACTIONS} = [{', '.join(settings.actions)}]: {what}; each at most once, and one at least")
    new = count - len(taken)
    text = f"actions: {len(taken)} of {count} taken, {new} new, {old - len(taken)} dropped"
    if isinstance(head, CategoricalHead):
        share = _share(settings.new_action_probability, len(taken), new)
        for name, x, shift in (("kernel", kernel, 0.0), ("bias", bias, math.log(share) if new else 0.0)):
            mean = x[..., taken].astype(np.float64).mean(-1, keepdims=True) + shift
            arrays[f"params.policy.{name}"] = _take(x, index, -1, mean)
        return f"{text}, with a probability of at most {settings.new_action_probability:g}" if new else text
    columns = np.concatenate([np.where(index < 0, -1, index + i * old) for i in range(blocks)])
    for name, x in (("kernel", kernel), ("bias", bias)):
        arrays[f"params.policy.{name}"] = _take(x, columns, -1, 0.0)
    if (log_std := arrays.get("params.log_std")) is not None:
        arrays["params.log_std"] = _take(log_std, index, -1, network.log_std_init)
    return text


def _share(probability: float, old: int, new: int) -> float:
    """Return the ratio r of exp(logit) of a new action to the geometric mean of exp(logit) over the old actions.

    With this r all new actions together have at most the probability `probability`, in every state. `old` and `new` are
    the numbers of actions: as a geometric mean is at most the arithmetic mean, the new actions' probability is at most
    new r / (old + new r), and r makes this bound equal to `probability`. Raises ConfigError where a new action could
    become the likeliest.
    """
    if not new:
        return 1.0
    limit = new / (old + new)
    if not 0.0 < probability < limit:
        raise ConfigError(
            f"init_from.new_action_probability = {probability:g}: must be above 0 and below {limit:g}, the share of "
            f"{new} of {old + new} actions, so that the likeliest action stays the same; nearest valid value: "
            f"{0.5 * limit if probability > 0 else 0.01:g}"
        )
    return probability * old / (new * (1.0 - probability))


def _take(x: np.ndarray, index: np.ndarray, axis: int, fill: Any) -> np.ndarray:
    """Return the entries of `x` at the indices `index` along an axis, with `fill` where an index is negative."""
    shape = [1] * x.ndim
    shape[axis] = len(index)
    chosen = np.take(x, np.maximum(index, 0), axis)
    return np.where((index < 0).reshape(shape), fill, chosen).astype(x.dtype)


def _paths(tree: Any) -> list[Any]:
    return [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _dotted(path: Any) -> str:
    text = jax.tree_util.keystr(path, simple=True, separator=".")
    return f".{text}" if text else ""
