"""Extensions: optional features of PPO. Their base class, with hooks into an update, and the chain that calls hooks.

An extension is a part (a frozen dataclass of options) whose state is kept under the extension's name:
`LearnerState.extensions[name]` for the learner, `ActorState.extensions[name]` for each stream, and
`Transition.extras[name]` for further inputs of each row. A hook is a method of `Extension` that PPO calls in an update.
By default a hook does nothing and adds no operation to the program; without extensions, PPO is the plain algorithm. The
extensions' hooks are called in the order of `PPO.extensions`, as the transformations of `optax.named_chain` are.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.metrics import Table, renamed
from ppax.arrays.sequences import to_pairs, to_rows
from ppax.core.parts import name_of as name_of
from ppax.core.parts import part
from ppax.core.types import (
    Acting,
    Batch,
    ConfigError,
    Decision,
    ExtensionState,
    ForwardPass,
    Key,
    LearnerState,
    Params,
    PyTree,
    Rollout,
    Scalar,
    Targets,
    Transition,
)
from ppax.ppo import normalization
from ppax.ppo.critics import value_losses
from ppax.ppo.diagnostics import History
from ppax.ppo.forward import decision_of, forward_sequences, in_float32, precise
from ppax.ppo.losses import acting_weight, weighted

Agent = TypeVar("Agent")

DRAWS = 2**32 - 2  # folded into the keys of an update for draws in losses (`Rows.draw`)
TRAINED = "extensions"  # key of the extensions' parameters among those of the network, in gradient steps


class Before(NamedTuple):
    """Result of the hook `Extension.before`: rewards, further inputs of rows, and the extension's next states."""

    state: PyTree  # of the extension, after this rollout
    reward: Array  # [T, B] that is learned from
    extras: PyTree = ()  # [T, B, ...] further inputs of each row: `Rows.extras` in a loss; zeros in invalid rows
    streams: PyTree = ()  # [B, ...] next state of each stream
    metrics: Mapping[str, Array] = {}  # [] by name


class Terms(NamedTuple):
    """Result of the hook `Extension.terms`: further terms of the loss, and metrics; each is [N], one number per row.

    Terms and metrics need names that no other metric has.
    """

    losses: Mapping[str, Array]  # coefficients included; added to the loss, and logged by name
    metrics: Mapping[str, Array] = {}  # logged only


class Observed(NamedTuple):
    """Result of the hook `Extension.observe`: the extension's next state, and whether to apply the gradient step.

    `inner` is the state that the extension has during one update. `proceed` False skips this gradient step only: an
    extension that ends the update returns False in each later step, too. None does not skip.
    """

    inner: PyTree  # state inside the update
    proceed: Array | None = None  # [] bool: whether to apply this gradient step; None: yes
    metrics: Mapping[str, Array] = {}  # [] of the gradient step, by name


class Learned(NamedTuple):
    """Input of the hook `Extension.after`: the batch that the update has learned from, and the update's metrics."""

    batch: Batch  # [M, L] steps, and targets from the stored values
    history: History  # of all gradient steps
    metrics: Table  # of the update so far


class After(NamedTuple):
    """Result of the hook `Extension.after`: the learner, and the extension's state until the next update."""

    learner: LearnerState
    state: PyTree  # of the extension, until the next update
    metrics: Mapping[str, Array] = {}  # [] by name


class Choice(NamedTuple):
    """Input of the hook `Extension.act`: the policy's outputs and the action chosen so far in every stream, [B, ...].

    A stream is one agent in one environment. The action is a sample of the policy or, if the preceding extension has
    replaced it, that extension's action.
    """

    policy: ForwardPass  # for the current observation
    action: PyTree  # a sample of the policy, or what the extension before has chosen
    obs: PyTree
    first: Array
    action_mask: PyTree | None


class Acted(NamedTuple):
    """Result of the hook `Extension.act`: the action of every stream, and the extension's next state of each stream.

    A stream is one agent in one environment.
    """

    acting: PyTree  # [B, ...] next state of each stream while acting
    action: PyTree  # [B, ...] as the policy's distribution samples it


class Rows(NamedTuple):
    """Input of the hook `Extension.terms`: rows [N] of a minibatch, with the network's outputs for them.

    The N rows are all rows of the minibatch, or one chunk of them where gradients are accumulated over chunks. A row is
    one step of a stream (one agent in one environment). The methods `forward`, `encode` and `losses` run the network on
    other observations, such as mirrored ones, in place of the rows' own.
    """

    agent: Any  # PPO with the numbers of this gradient step
    batch: Batch  # [N] steps, targets and weights
    policy: ForwardPass  # of the current network for these rows
    learner: LearnerState  # with the current parameters
    sequences: Transition  # [m, L] the same steps, before they were flattened
    keys: Key  # [num_epochs] of the update
    index: Array  # type: ignore[assignment]  # [m] numbers of the sequences in the rollout
    params: Params = ()  # trained parameters of this extension
    extras: PyTree = ()  # [N, ...] further inputs that `before` of this extension has made

    def forward(self, obs: PyTree, action_mask: PyTree | None = None) -> ForwardPass:
        """Return the network's outputs for other observations of this minibatch's N rows: `obs` [N, ...], one for each.

        An extension's loss calls it to compare the outputs at changed observations with those at the recorded ones. A
        network with memory starts from the recurrent state that is stored for the beginning of each sequence of rows.
        """
        obs, action_mask = to_pairs((obs, action_mask), self.sequences.valid.shape[1])
        steps = dataclasses.replace(self.sequences, obs=obs, action_mask=action_mask)
        return forward_sequences(self.agent, self.learner, steps)

    def draw(self, size: int) -> Array:
        """Return a random integer in [0, size) for each row, [N].

        A row gets the same integer in all epochs of an update, and however rows are split over minibatches, chunks and
        devices.
        """
        length = self.sequences.valid.shape[1]
        rows = to_rows(self.index[:, None] * length + jnp.arange(length)[None])
        # all keys are folded, and one is taken: JAX's key-reuse checker counts a slice of keys as their use
        key = jax.vmap(lambda one: jax.random.fold_in(one, DRAWS))(self.keys)[0]
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
        drawn: Array = jax.vmap(lambda one: jax.random.randint(one, (), 0, size))(keys)
        return drawn

    def inputs(self, obs: PyTree) -> PyTree:
        """Return `obs` [N, ...] as the network's input: float32, and standardised if the agent standardises.

        `obs` may be other observations than the rows' own, such as next or mirrored observations.
        """
        stats = self.learner.obs_stats
        return in_float32(obs if stats is None else normalization.normalize_obs(stats, obs))

    def encode(self, obs: PyTree) -> PyTree:
        """Return the encoded observations, `Network.encode` of `obs` [N, ...]: what the network's memory reads.

        `obs` may be other observations than the rows' own. The result is a tree of float32 arrays, [N, ...] each.
        """
        with precise(self.agent.network, self.agent.compute_dtype, self.learner.params) as params:
            return in_float32(jax.vmap(self.agent.network.encode, (None, 0))(params, self.inputs(obs)))

    def losses(self, batch: Batch) -> Array:
        """Return PPO's loss of each row of `batch`, [N]: policy + vf_coef * value - ent_coef * entropy.

        `batch` has the same N rows with other contents, such as mirrored observations and actions. A network with
        memory starts from the recurrent states that were stored with the original rows. Importance weights are left
        out, as the mean over rows has them. Where some rows allow no action, policy and entropy have the weights of
        `RowWeights.acting`, as in PPO's own loss.
        """
        agent, policy = self.agent, self.forward(batch.steps.obs, batch.steps.action_mask)
        value = value_losses(agent.critic, self.learner.critic, policy.value_outputs, batch)
        policy_loss = agent.loss(policy.distribution, batch).loss - agent.ent_coef * policy.distribution.entropy()
        total: Array = weighted(policy_loss, acting_weight(batch)) + agent.vf_coef * value
        return total


@part
class Extension:
    """Base class of extensions: a part whose hooks PPO calls in an update. Override those that you need.

    A part is a frozen dataclass of options. In all hooks, `agent` is the PPO that has the extension, and `state` is the
    extension's state, as `init` or the last hook that changed it returned it. `name` tells two extensions of one class
    apart; in a run file it is the name of the table, [agent.extensions.NAME].
    """

    name: str = dataclasses.field(default="", kw_only=True, metadata={"static": True, "named": True})

    @property
    def needs_latest_policy(self) -> str:
        """Return the name of the extension's option that needs rollouts of the latest policy; "" if there is none.

        Such an option cannot be used with `overlap`, where the next rollout is collected during an update, by the
        policy before that update.
        """
        return ""

    @property
    def grows(self) -> bool:
        """Return True if the first update adds arrays to the extension's state.

        `ppax.start`, which makes the state before the first update, then allocates these arrays as zeros.
        """
        return False

    def check(self, agent: Any) -> None:
        """Raise ConfigError where the extension's options contradict each other or those of `agent`.

        Its number options, such as coefficients, have concrete values here: none is a JAX tracer.
        """

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return the extension's initial state, and parameters that the loss trains along with the network's.

        Each of the two is () if there is none. Raises ConfigError where options contradict each other or those of
        `agent`.
        """
        return ExtensionState()

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the extension's initial state for each stream, [B, ...]; () if there is none.

        A stream is one agent in one environment; its state is kept with the environment, from one rollout to the next.
        """
        return ()

    def init_acting(self, agent: Any, num_streams: int) -> PyTree:
        """Return the extension's initial state for each stream while it acts, [B, ...]; () if it does not act.

        A stream is one agent in one environment; the state is carried from step to step along with the network's
        memory. If it is (), the hook `act` is not called.
        """
        return ()

    def act(self, agent: Any, acting: PyTree, choice: Choice, key: Key) -> Acted:
        """Return the action of every stream (one agent in one environment) while rollouts are collected; `key` is [B].

        `acting` is the extension's state for each stream, and `choice` has the action so far. The log-probability that
        a rollout stores is that of the returned action under the policy. Evaluations, films and exports act without
        this hook.
        """
        return Acted(acting, choice.action)

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return this update's rewards and further inputs of rows, and the state after learning from the rollout.

        PPO calls it once an update, before it computes advantages and value targets. `state` is the extension's, and
        `streams` its state for each stream (one agent in one environment). `reward` [T, B] is the environment's, scaled
        where the agent scales it, and changed by extensions before this one. Rows that are not valid (autoreset steps)
        may hold any observation, and their rewards are not read; `following_in_episode(rollout)` gives the observation
        after each step. On several devices `rollout` has the streams of one of them: `ppax.devices.sharding.gather`
        joins all, and `state` must be the same on all.
        """
        return Before(state, reward, (), streams)

    def targets(self, targets: Targets, extras: PyTree) -> Targets:
        """Return advantages and value targets as changed by this extension, for example with an advantage added.

        PPO calls it wherever it computes targets. `extras` are the further inputs of the same rows, which the hook
        `before` of this extension has returned.
        """
        return targets

    def terms(self, rows: Rows) -> Terms:
        """Return further terms of the loss, [N] each, one number per row; PPO takes the mean over valid rows."""
        return Terms({})

    def begin(self, state: PyTree) -> PyTree:
        """Return the extension's state for the gradient steps of one update; other hooks get it as `inner`."""
        return ()

    def adapt(self, agent: Any, inner: PyTree) -> Any:
        """Return the agent with its numbers, such as the learning rate, changed for one gradient step.

        `inner` is the extension's state inside the update.
        """
        return agent

    def observe(self, agent: Any, inner: PyTree, metrics: Mapping[str, Array], acts: Array) -> Observed:
        """Return the extension's state after a minibatch's loss is known, and whether to apply its gradient step.

        `inner` is the extension's state inside the update, `metrics` are those of the loss, and `acts` [] says whether
        the minibatch has a row that the policy learns from. The returned state is already used for this step: `adapt`
        then sets the step's numbers, such as the learning rate, from it.
        """
        return Observed(inner)

    def after(self, agent: Any, learner: LearnerState, state: PyTree, inner: PyTree, learned: Learned) -> After:
        """Return the learner and the extension's state after further learning at the end of an update.

        PPO calls it once an update, after its gradient steps; `learned` has the batch and the metrics of this update.
        The statistics of observations do not include this rollout yet. Rows that are not valid must have no influence,
        and the result must be the same on all devices. `inner` is the extension's state inside the update.
        """
        return After(learner, state)

    def rescale_value(self, state: PyTree, scale: Scalar, shift: Scalar) -> PyTree:
        """Return the extension's state with its value heads changed: new outputs = scale [] * old outputs + shift.

        `shift` is [] or [num_values]. PPO calls it together with `Network.rescale_value`, for critics whose outputs
        have a changing scale, such as PopArt.
        """
        return state


def folded(name: str) -> int:
    """Return an integer hash of an extension's name; folded into the learner's key, it makes the extension's key."""
    return zlib.crc32(name.encode())


class Chain:
    """All extensions of an agent, in order; a method named as a hook calls that hook of each extension, one by one."""

    def __init__(self, extensions: Sequence[Extension]):
        """Keep `extensions` by name; raise ConfigError if two have the same name, or if a name is no identifier."""
        self.by_name = {name_of(extension): extension for extension in extensions}
        odd = next((name for name in self.by_name if not name.isidentifier()), None)
        if odd is not None:
            raise ConfigError(f"extensions: the name {odd!r} must be letters, digits and underscores, as rnd_2")
        counts = Counter(map(name_of, extensions))
        twice = next((name for name in counts if counts[name] > 1), None)
        if twice is not None:
            cls = type(self.by_name[twice]).__name__
            raise ConfigError(f'extensions: two are named {twice}; give one another name, {cls}(name="{twice}_2")')

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> dict[str, ExtensionState]:
        """Return each extension's initial state and trained parameters, by name; each gets a random key of its own."""
        states = {}
        for name, extension in self.by_name.items():
            state, params = extension.init(agent, observation_space, jax.random.fold_in(key, folded(name)))
            states[name] = ExtensionState(state, in_float32(params))
        return states

    def check(self, agent: Any) -> None:
        """Raise ConfigError where options of one of the extensions contradict each other or those of `agent`."""
        for extension in self.by_name.values():
            extension.check(agent)

    def init_streams(self, num_streams: int) -> dict[str, PyTree]:
        """Return the initial states that extensions keep for each stream, [B, ...], by name.

        A stream is one agent in one environment.
        """
        return {name: extension.init_streams(num_streams) for name, extension in self.by_name.items()}

    def init_acting(self, agent: Any, num_streams: int) -> dict[str, PyTree]:
        """Return the initial states of the extensions that change actions, for each stream, [B, ...], by name.

        A stream is one agent in one environment. The dict is empty if no extension changes actions.
        """
        states = {name: extension.init_acting(agent, num_streams) for name, extension in self.by_name.items()}
        return {name: state for name, state in states.items() if jax.tree.leaves(state)}

    def act(self, agent: Any, choice: Choice, key: Key) -> Decision:
        """Return the decision for every stream (one agent in one environment), with the action that extensions change.

        `choice` has the policy's outputs and a sample of the policy, which is the action if no extension changes it. An
        extension acts only if the policy's carry (the state kept from step to step) has an entry for it. `key` is one
        key, or one for each stream [B].
        """
        policy = choice.policy
        states = dict(policy.carry.extensions) if isinstance(policy.carry, Acting) else {}
        for name, extension in self.by_name.items() if states else ():
            if name not in states:
                continue
            fold = partial(jax.random.fold_in, data=folded(name))
            keys = jax.vmap(fold)(key) if key.ndim else jax.random.split(fold(key), len(choice.first))
            states[name], action = extension.act(agent, states[name], choice, keys)
            choice = choice._replace(action=action)
        if states:
            policy = policy._replace(carry=policy.carry._replace(extensions=states))
        return decision_of(policy, choice.action)

    def trained(self, learner: LearnerState) -> Params:
        """Return the parameters that gradient steps train: those of the network, and of extensions that have some.

        The extensions' parameters are one more entry, named TRAINED, in the dict of the network's parameters. Raises
        ConfigError if extensions have parameters, but the network's are no dict or have an entry of this name already.
        """
        own = {name: one.params for name, one in learner.extensions.items() if jax.tree.leaves(one.params)}
        if not own:
            return learner.params
        if not isinstance(learner.params, dict) or TRAINED in learner.params:
            raise ConfigError(
                f"extensions: {', '.join(own)} has parameters; those of the network must be a dict without the name "
                f"{TRAINED!r}; rename that of your network"
            )
        return learner.params | {TRAINED: own}

    def with_trained(self, learner: LearnerState, params: Params) -> LearnerState:
        """Return the learner with the parameters `params`, which have the form that `Chain.trained` returns.

        The network's parameters replace the learner's, and an extension's parameters go into the extension's state.
        """
        if not isinstance(params, dict) or TRAINED not in params:
            return learner._replace(params=params)
        own = params[TRAINED]
        states = {name: one._replace(params=own.get(name, ())) for name, one in learner.extensions.items()}
        network = {name: x for name, x in params.items() if name != TRAINED}
        return learner._replace(params=network, extensions=states)

    def before(self, agent: Any, learner: LearnerState, rollout: Rollout, reward: Array) -> Prepared:
        """Return learner, steps and rewards after the hook `before` of each extension, called in their order.

        PPO calls it once an update, before it computes targets. `reward` [T, B] is the environment's, scaled where the
        agent scales it.
        """
        states, extras, streams = dict(learner.extensions), {}, {}
        metrics: dict[str, Table] = {}
        for name, extension in self.by_name.items():
            out = extension.before(agent, states[name].state, rollout.extensions[name], rollout, reward)
            states[name], streams[name] = states[name]._replace(state=out.state), out.streams
            reward, metrics[name] = out.reward, self._named(name, out.metrics)
            if jax.tree.leaves(out.extras):
                extras[name] = out.extras
        steps = dataclasses.replace(rollout.steps, extras=extras) if extras else rollout.steps
        return Prepared(learner._replace(extensions=states), steps, reward, streams, metrics)

    def targets(self, targets: Targets, steps: Transition) -> Targets:
        """Return advantages and value targets after the changes of all extensions, one after the other.

        `steps` are the steps that the targets belong to, with the extensions' further inputs.
        """
        for name, extension in self.by_name.items():
            targets = extension.targets(targets, extras_of(steps, name))
        return targets

    def terms(self, rows: Rows) -> Terms:
        """Return all extensions' further terms of the loss; an extension gets its own parameters and inputs of rows."""
        losses: dict[str, Array] = {}
        metrics: dict[str, Array] = {}
        for name, extension in self.by_name.items():
            trained = rows.learner.params.get(TRAINED, {}) if isinstance(rows.learner.params, dict) else {}
            own = rows._replace(params=trained.get(name, ()), extras=extras_of(rows.batch.steps, name))
            terms = Terms(*(self._named(name, one) for one in extension.terms(own)))
            require_new(name, [*terms.losses, *terms.metrics], {**losses, **metrics})
            losses, metrics = losses | dict(terms.losses), metrics | dict(terms.metrics)
        return Terms(losses, metrics)

    def begin(self, learner: LearnerState) -> dict[str, PyTree]:
        """Return each extension's state inside an update, by name, as it is before the first gradient step."""
        return {name: one.begin(learner.extensions[name].state) for name, one in self.by_name.items()}

    def adapt(self, agent: Agent, inner: Mapping[str, PyTree]) -> Agent:
        """Return the agent with its numbers, such as the learning rate, as extensions change them for a gradient step.

        `inner` has each extension's state inside the update, by name.
        """
        for name, extension in self.by_name.items():
            agent = extension.adapt(agent, inner[name])
        return agent

    def observe(self, agent: Any, inner: Mapping[str, PyTree], metrics: Mapping[str, Array], acts: Array) -> Observed:
        """Return all extensions' states after a minibatch's loss is known, and whether to apply its gradient step.

        The step is applied unless an extension says no. `inner` has each extension's state inside the update, by name;
        `metrics` are those of the loss, and `acts` [] says whether the minibatch has a row that the policy learns from.
        """
        after, proceed, seen = {}, None, Table({})
        for name, extension in self.by_name.items():
            out = extension.observe(agent, inner[name], metrics, acts)
            own_metrics = self._named(name, out.metrics)
            require_new(name, own_metrics, {**metrics, **seen})
            after[name], seen = out.inner, seen | own_metrics
            if out.proceed is not None:
                proceed = out.proceed if proceed is None else proceed & out.proceed
        return Observed(after, proceed, seen)

    def after(
        self,
        agent: Any,
        learner: LearnerState,
        inner: Mapping[str, PyTree],
        learned: Learned,
        before: Mapping[str, Table],
    ) -> Finished:
        """Return learner and metrics after the hook `after` of each extension, called in their order.

        PPO calls it once an update, after the gradient steps. `inner` has each extension's state inside the update, by
        name; `before` are the metrics that `Chain.before` has returned.
        """
        metrics = learned.metrics
        for name, table in before.items():
            require_new(name, table, metrics)
            metrics |= table
        for name, extension in self.by_name.items():
            own = learner.extensions[name]
            out = extension.after(agent, learner, own.state, inner[name], learned._replace(metrics=metrics))
            states = {**out.learner.extensions, name: own._replace(state=out.state)}
            own_metrics = self._named(name, out.metrics)
            require_new(name, own_metrics, metrics)
            learner, metrics = out.learner._replace(extensions=states), metrics | own_metrics
        return Finished(learner, metrics)

    def rescale_value(self, learner: LearnerState, scale: Scalar, shift: Scalar) -> LearnerState:
        """Return the learner with the extensions' value heads changed: new outputs = scale * old outputs + shift."""
        states = {
            name: one._replace(state=self.by_name[name].rescale_value(one.state, scale, shift))
            for name, one in learner.extensions.items()
        }
        return learner._replace(extensions=states)

    def _named(self, name: str, metrics: Mapping[str, Array]) -> Table:
        """Return metrics of the extension `name` by their names in the log.

        The first extension of a class logs metrics under their plain names; for further extensions of the same class,
        the extension's name and "_" stand before them.
        """
        same = [other for other, one in self.by_name.items() if type(one) is type(self.by_name[name])]
        return renamed(metrics, lambda metric: metric if same[0] == name else f"{name}_{metric}")


class Prepared(NamedTuple):
    """Result of `Chain.before`: learner, steps and rewards as all extensions have changed them."""

    learner: LearnerState
    steps: Transition  # [T, B] with the extras of all extensions
    reward: Array  # [T, B] that is learned from
    streams: dict[str, PyTree]  # [B, ...] next state of each stream, by name
    metrics: dict[str, Table]  # of each extension, by its name


class Finished(NamedTuple):
    """Result of `Chain.after`: learner and metrics of an update after all extensions."""

    learner: LearnerState
    metrics: Table


def extras_of(steps: Transition, name: str) -> PyTree:
    """Return the further inputs of the rows `steps` that the extension `name` has made; () if it has made none."""
    return steps.extras[name] if steps.extras and name in steps.extras else ()


def require_new(name: str, own: Iterable[str], others: Mapping[str, Array]) -> None:
    """Raise ConfigError where a metric of the extension `name` has the name of another metric.

    `own` are the names of the extension's metrics, `others` are all other metrics.
    """
    taken = next((one for one in own if one in others), None)
    if taken is not None:
        raise ConfigError(
            f"extensions.{name}: the metric {taken!r} exists already; give this metric of its class another "
            "name, or leave one of the two extensions out"
        )
