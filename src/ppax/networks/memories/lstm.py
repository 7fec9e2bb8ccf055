"""Long short-term memory: Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735

With a forget gate: Gers et al. 2000.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part, static
from ppax.networks.memories.memory import unrolled
from ppax.networks.memories.recurrence import init_gates, recurrent_matmul
from ppax.networks.products import factor, matmul


class LSTMState(NamedTuple):
    """State of an LSTM: cell state and hidden state (its output)."""

    c: Array  # [width] cell state
    h: Array  # [width] hidden state


class LSTMGates(NamedTuple):
    """Gate activations of one step of an LSTM, [width] each."""

    i: Array  # input gate
    f: Array  # forget gate: 1 keeps the cell, 0 clears it
    g: Array  # candidate
    o: Array  # output gate


class LSTMStep(NamedTuple):
    """Values of one step of an LSTM that are kept for the backward pass."""

    previous: LSTMState  # state before the step: zeros where an episode begins
    gates: LSTMGates
    h: Array  # [width] hidden state after it


@part
class LSTM:
    """Memory by long short-term memory: a cell state with input, forget and output gates."""

    width: int = static("size of the LSTM's cell state and hidden state", default=64, low=1)

    own_products: ClassVar[bool] = True

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of an LSTM for features [size]; matrices have the gates side by side, [..., 4 width].

        Their order is input, forget, candidate, output. The forget gate's bias starts at 1 (Jozefowicz et al. 2015).
        With 0 a cell would lose half of its content at each step; then half of the seeds learned no dependency over
        twenty steps.
        """
        params = init_gates(key, size, self.width, 4)
        zeros = jnp.zeros(self.width, jnp.float32)
        bias = jnp.concatenate([zeros, zeros + 1.0, zeros, zeros])
        return params | {"input": params["input"] | {"bias": bias}}

    def output_size(self, size: int) -> int:
        """Return the length of the LSTM's output, its hidden state, which is `width`."""
        return self.width

    def initial_carry(self, size: int) -> LSTMState:
        """Return the zero cell state and hidden state, [width] each, of an LSTM at an episode's start."""
        return LSTMState(jnp.zeros(self.width, jnp.float32), jnp.zeros(self.width, jnp.float32))

    def project_in(self, params: Params, x: Array) -> Array:
        """Return the contribution of one step's features to the LSTM's gates, [4 width], without their bias."""
        return matmul(x, params["input"]["kernel"])

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return last state and hidden states [L, width] of an LSTM over one stream's gate inputs [L, 4 width].

        A stream is one agent in one environment; `first` [L] resets the state before a step where it is True. For
        speed, the backward pass reuses the gates of the forward pass, and computes the recurrent kernel's gradient by
        one product for all steps. `carry`, the state before the sequence, is data and receives no gradient.
        """
        kernel, bias = params["recurrent"], params["input"]["bias"]
        x = x.astype(jnp.float32)

        def step(cell: LSTMState, inputs: tuple[Array, Array]) -> tuple[LSTMState, LSTMStep]:
            x, first = inputs
            previous = jax.tree.map(lambda s: jnp.where(first, 0.0, s), cell)
            gates = lstm_gates(x + bias + matmul(previous.h, kernel))
            c = gates.f * previous.c + gates.i * gates.g
            cell = LSTMState(c, gates.o * jnp.tanh(c))
            return cell, LSTMStep(previous, gates, cell.h)

        computed = jax.lax.scan(step, carry, (x, first), unroll=unrolled(first.shape[0]))
        (last, steps), weights = jax.lax.stop_gradient((computed, factor(kernel)))
        # zeros for the recurrent part: only the gradients of these inputs, to `x`, `bias` and `kernel`, are used
        inputs = x + bias[None] + recurrent_matmul(jnp.zeros_like(x), steps.previous.h, kernel)
        return Memory(last, _backprop_through_time(inputs, steps, first, weights))

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the LSTM's output for one step: its hidden state [width], as it is."""
        features: Array = y
        return features


def lstm_gates(x: Array) -> LSTMGates:
    """Return the gates of one step of an LSTM from the sum of the input's and the state's contributions, [4 width]."""
    i, f, g, o = jnp.split(x, 4)
    return LSTMGates(jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o))


@jax.custom_vjp
def _backprop_through_time(inputs: Array, steps: LSTMStep, first: Array, kernel: Array) -> Array:
    """Return the LSTM's hidden states [L, width], which are in `steps`; its gradient has a backward pass written here.

    `inputs` [L, 4 width] are the sums that enter the gates. They are an argument only to receive gradients; their
    values are not read.
    """
    return steps.h


def _backprop_forward(inputs: Array, steps: LSTMStep, first: Array, kernel: Array) -> tuple[Array, PyTree]:
    return steps.h, (steps, first, kernel)


def _backprop_backward(residuals: PyTree, gradient: Array) -> tuple[Array | None, ...]:
    steps, first, kernel = residuals
    transposed = kernel.T  # once, not in every step

    def step(from_later: LSTMState, inputs: tuple[Array, LSTMStep, Array]) -> tuple[LSTMState, Array]:
        own, (previous, (i, f, g, o), _), first = inputs
        tanh_c = jnp.tanh(f * previous.c + i * g)
        h = own + from_later.h
        c = from_later.c + h * o * (1.0 - tanh_c * tanh_c)
        of_i, of_f, of_g = c * g * i * (1.0 - i), c * previous.c * f * (1.0 - f), c * i * (1.0 - g * g)
        of_inputs = jnp.concatenate([of_i, of_f, of_g, h * tanh_c * o * (1.0 - o)])
        earlier = LSTMState(f * c, matmul(of_inputs, transposed))
        return jax.tree.map(lambda x: jnp.where(first, 0.0, x), earlier), of_inputs

    start = LSTMState(jnp.zeros_like(gradient[0]), jnp.zeros_like(gradient[0]))
    _, of_inputs = jax.lax.scan(step, start, (gradient, steps, first), reverse=True, unroll=unrolled(len(first)))
    return of_inputs, None, None, None


_backprop_through_time.defvjp(_backprop_forward, _backprop_backward)
