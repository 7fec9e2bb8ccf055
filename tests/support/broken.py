"""Environments, networks, distributions and parts with one fault each, as a user might write them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import ppax
from ppax.core.types import MinibatchIndices, Targets, part, static
from ppax.distributions import Categorical, Normal
from ppax.envs import builtin
from ppax.networks import Composed
from ppax.networks.heads import CategoricalHead
from ppax.ppo.minibatches import Shuffle
from support.worlds import Counter, Leaky, Masked


@part
class OwnKey(builtin.CartPole):
    """Resets from a key of its own."""

    def reset(self, key):
        return super().reset(jax.random.key(0))


@part
class KeyTwice(builtin.CartPole):
    """Draws twice from one key."""

    def reset(self, key):
        begin = super().reset(jax.random.clone(key))
        x = jax.random.uniform(key) + jax.random.normal(key)
        return begin._replace(obs=begin.obs + 0.0 * x)


@part
class WholeNumbers(Counter):
    """Observations are integers, the space says floats."""

    def reset(self, key):
        begin = super().reset(key)
        return begin._replace(obs=begin.obs.astype(jnp.int32))


@part
class ChangingState(Counter):
    """The state's type changes with the first step."""

    def step(self, state, action, key):
        out = super().step(state, action, key)
        return out._replace(state=out.state._replace(time=out.state.time.astype(jnp.float32)))


@part
class Outside(Counter):
    """Counts to 3 in a space that ends at 2."""

    observation_space = spaces.Box(0.0, 2.0, (2,), np.float32)


@part
class SelfResetting(builtin.CartPole):
    """Begins the next episode inside the last step of this one."""

    def step(self, state, action, key):
        out = super().step(state, action, key)
        begin = self.reset(jax.random.clone(key))
        over = out.terminated | out.truncated
        state, obs = jax.tree.map(lambda a, b: jnp.where(over, a, b), (begin.state, begin.obs), (out.state, out.obs))
        return out._replace(state=state, obs=obs)


@part
class Falling(Counter):
    """Ends far away, which is no fault."""

    def step(self, state, action, key):
        out = super().step(state, action, key)
        return out._replace(obs=jnp.where(out.terminated, 100.0, out.obs))


@part
class Remembering(Counter):
    """Counts its calls in Python."""

    calls: tuple = static(default=())

    def reset(self, key):
        CALLS.append(1)
        begin = super().reset(key)
        return begin._replace(obs=begin.obs + len(CALLS))


CALLS: list = []


@part
class Explodes(Counter):
    """The third step of an episode is not a number."""

    def step(self, state, action, key):
        out = super().step(state, action, key)
        return out._replace(reward=jnp.where(out.state.time == 2, jnp.nan, out.reward))


@part
class Growing(Counter):
    """The observation is the same number in all entries, which grows by a fifth and one in each step."""

    factor: float = ppax.number(default=1.2)

    @property
    def observation_space(self):
        return spaces.Box(-np.inf, np.inf, (2,))

    def step(self, state, action, key):
        out = super().step(state, action, key)
        return out._replace(obs=jnp.full(2, self.factor**out.state.time))


@part
class Raises(Counter):
    def step(self, state, action, key):
        raise RuntimeError("the simulator is gone")


@part
class Shown(Masked):
    """Healthy: an observation that is not always 0, so that weights get a gradient."""

    def reset(self, key):
        return super().reset(key)._replace(obs=jnp.ones(1))

    def step(self, state, action, key):
        return super().step(state, action, key)._replace(obs=jnp.ones(1))


@part
class Forbidding(Masked):
    """Allows nothing at every fourth step."""

    def _mask(self, time):
        return super()._mask(time) & (time % 4 != 3)


# ---------------------------------------------------------------- networks


@part
class Leaking(Leaky):
    """Does not forget."""

    def remember(self, params, carry, features, first):
        return super().remember(params, carry, features, first & False)


@part
class Restless(Composed):
    """Normalises by something that Python counts: every trace sees another number."""

    def encode(self, params, obs):
        CALLS.append(1)
        return super().encode(params, obs * (1.0 + 0.1 * len(CALLS)))


@part
class Unread(Composed):
    """Has a parameter that nothing reads."""

    def init(self, key, num_values=1):
        return super().init(key, num_values) | {"unread": jnp.ones(3)}


@part
class MaskBlind(Composed):
    """Forgets the mask."""

    def decide(self, params, features, action_mask):
        return super().decide(params, features, None)


@part
class With(Composed):
    """Another distribution in place of the usual one."""

    kind: type = static(default=Categorical)

    def decide(self, params, features, action_mask):
        outputs = super().decide(params, features, action_mask)
        distribution = outputs.distribution
        fields = {field.name: getattr(distribution, field.name) for field in dataclasses.fields(distribution)}
        return outputs._replace(distribution=self.kind(**fields))


# ---------------------------------------------------------------- distributions


@part
class Cold(Categorical):
    """Samples at half the temperature that log_prob knows."""

    def sample(self, key):
        return jax.random.categorical(key, 2.0 * self.logits).astype(jnp.int32)


@part
class Normalised:
    """Categorical whose field has the log-probabilities, already normalised; log_prob is one of them."""

    log_probs: jax.Array
    hot: float = static(default=1.0)  # temperature of the samples

    def sample(self, key):
        return jax.random.categorical(key, self.log_probs / self.hot).astype(jnp.int32)

    def log_prob(self, action):
        return jnp.take_along_axis(self.log_probs, action[..., None], -1)[..., 0]

    def entropy(self):
        return -(jnp.exp(self.log_probs) * self.log_probs).sum(-1)

    def mode(self):
        return self.log_probs.argmax(-1).astype(jnp.int32)

    def env_action(self, action):
        return action


@part
class NormalisedHead(CategoricalHead):
    """Head of `Normalised`."""

    hot: float = static(default=1.0)

    def __call__(self, outputs, log_std, action_mask):
        return Normalised(jax.nn.log_softmax(outputs), self.hot)


@part
class Narrow(Normal):
    """Samples with half the standard deviation that log_prob knows."""

    def sample(self, key):
        return self.mean + 0.5 * (super().sample(key) - self.mean)


@part
class ClippedFirst(Normal):
    """The density of the clipped action."""

    def log_prob(self, action):
        return super().log_prob(jnp.clip(action, -1.0, 1.0))


@part
class Unclipped(Normal):
    """The environment gets the sample itself."""

    def env_action(self, action):
        return action


# ---------------------------------------------------------------- parts


@part
class Immortal:
    """Death does not cut the value."""

    def __call__(self, steps, next_value, gamma, ratio=None):
        value = steps.reward + gamma * next_value
        return Targets(value - steps.value, value)


@part
class CutIsDeath:
    """A time limit cuts the value."""

    def __call__(self, steps, next_value, gamma, ratio=None):
        value = steps.reward + gamma * jnp.where(steps.ended, 0.0, next_value)
        return Targets(value - steps.value, value)


@part
class Product:
    """Cuts by a product, which NaN survives."""

    def __call__(self, steps, next_value, gamma, ratio=None):
        value = steps.reward + gamma * (1.0 - steps.terminated) * next_value
        return Targets(value - steps.value, value)


@part
class OneOrder:
    """The same order in every epoch; the last `left_out` sequences come never, `twice` draws with replacement."""

    num_minibatches: int = static(default=2)
    left_out: int = static(default=0)
    twice: bool = static(default=False)

    def size(self, sequences, length):
        return (sequences - self.left_out) // self.num_minibatches

    def __call__(self, batch, key):
        count = batch.steps.valid.shape[0]
        size = self.size(*batch.steps.valid.shape)
        if self.twice:
            return MinibatchIndices(jax.random.randint(key, (self.num_minibatches, size), 0, count))
        return MinibatchIndices(jnp.arange(self.num_minibatches * size).reshape(self.num_minibatches, size))


@part
class Leaves(Shuffle):
    """A shuffle with padding in the place of the first four sequences."""

    def __call__(self, batch, key):
        index = super().__call__(batch, key).index
        return MinibatchIndices(jnp.where(index < 4, batch.steps.valid.shape[0], index))


@part
class Repeats(Shuffle):
    """A shuffle without padding that draws four sequences twice, and the four before them never."""

    def __call__(self, batch, key):
        index = super().__call__(batch, key).index
        return MinibatchIndices(jnp.where(index < 4, index + 4, index))


@part
class Newest:
    """The later half of the sequences of each stream, of one step each and shuffled; `shift` is added to an index."""

    num_minibatches: int = static(default=2)
    shift: int = static(default=0)

    def size(self, sequences, length):
        return sequences // 2 // self.num_minibatches

    def __call__(self, batch, key):
        count = batch.steps.valid.shape[0]
        newest = jnp.arange(count).reshape(-1, 12)[:, 6:].reshape(count // 2)  # index = stream * 12 + step
        return MinibatchIndices(
            jax.random.permutation(key, newest).reshape(self.num_minibatches, -1) + count * self.shift
        )


@part
class Unmasked(ppax.losses.ClippedSurrogate):
    """A loss with a mean over all rows in the term of each row."""

    def __call__(self, distribution, batch):
        terms = super().__call__(distribution, batch)
        return terms._replace(loss=terms.loss + 0.1 * (terms.log_ratio**2).mean())


@part
class Summed(ppax.losses.ClippedSurrogate):
    """A loss whose terms grow with the number of rows."""

    def __call__(self, distribution, batch):
        terms = super().__call__(distribution, batch)
        return terms._replace(loss=terms.loss * batch.steps.valid.sum())
