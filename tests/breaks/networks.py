"""Breaks of networks: towers, stacks of memories, recomputed scans, layers."""

from breaks.base import Mutation

MEMORIES = "tests/networks/test_memories.py::"
TOWER = "tests/networks/test_tower.py::"
LAYERS = "tests/networks/test_layers.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "every layer of a stack has the carry of the first",
        'self.cell.scan(params[str(i)]["cell"], carry[i], x["cell"], first)',
        'self.cell.scan(params[str(i)]["cell"], carry[0], x["cell"], first)',
        (MEMORIES + "test_single_steps_equal_the_sequence[stack of gru-never]",),
        "memories/stack.py",
    ),
    Mutation(
        "only the first layer of a stack is reset",
        'self.cell.scan(params[str(i)]["cell"], carry[i], x["cell"], first)',
        'self.cell.scan(params[str(i)]["cell"], carry[i], x["cell"], first & (i == 0))',
        (
            MEMORIES + "test_sequences_equal_float64_equations[stack of gru-often]",
            MEMORIES + "test_gradients_stop_at_resets_only[stack of gru]",
        ),
        "memories/stack.py",
    ),
    Mutation(
        "a window of single entries has all of them",
        "x[:, self.columns] if self.columns else x, first",
        "x[:, : len(self.columns)] if self.columns else x, first",
        ("tests/networks/test_composed.py::test_a_window_of_single_entries",),
        "memories/window.py",
    ),
    Mutation(
        "the places of entries are those without the encoders' sizes",
        "range(size, size := size + reader.size())",
        "range(size, size := size + 1)",
        ("tests/networks/test_composed.py::test_a_window_of_single_entries",),
        "networks/composed.py",
    ),
    Mutation(
        "windows of single entries after layers that mix them",
        '    if hidden:\n        raise ConfigError(\n            f"{given}: the hidden',
        '    if False:\n        raise ConfigError(\n            f"{given}: the hidden',
        ("tests/networks/test_composed.py::test_windows_of_single_entries_that_cannot_be_are_refused",),
        "networks/composed.py",
    ),
    Mutation(
        "blocks of SimBa without their residual connections",
        'x = x + dense(block["shrink"], inner)',
        'x = dense(block["shrink"], inner)',
        (LAYERS + "test_simba_by_hand",),
        "networks/layers.py",
    ),
    Mutation(
        "blocks of SimBa without their layer norm",
        'jax.nn.relu(dense(block["grow"], layer_norm(block["norm"], x)))',
        'jax.nn.relu(dense(block["grow"], x))',
        (LAYERS + "test_simba_by_hand",),
        "networks/layers.py",
    ),
    Mutation(
        "SimBa without its last layer norm",
        'return layer_norm(params["norm"], x)\n\n\ndef init_norm',
        "return x\n\n\ndef init_norm",
        (LAYERS + "test_simba_by_hand",),
        "networks/layers.py",
    ),
    Mutation(
        "layers after the memory are dense where those before it are SimBa's",
        "params = self._init_layers(jax.random.fold_in(key, 1), size, self.head_hidden)",
        "params = init_layers(jax.random.fold_in(key, 1), size, self.head_hidden, self.gain)",
        (LAYERS + "test_simba_by_hand",),
        "networks/composed.py",
    ),
    Mutation(
        "SimBa with options that it has already",
        "if self.layer_norm or self.residual:",
        "if False:",
        (LAYERS + "test_options_that_contradict_simba_are_refused",),
        "networks/composed.py",
    ),
    Mutation(
        "first weights of SimBa's blocks that do not depend on the number of inputs",
        "jnp.float32) * (gain / math.sqrt(size_in))",
        "jnp.float32) * gain",
        (LAYERS + "test_first_weights_of_simba",),
        "networks/layers.py",
    ),
    Mutation(
        "hidden layers without their residual connections",
        "x = x + y if residual and x.shape == y.shape else y",
        "x = y",
        (LAYERS + "test_residual_connections_by_hand",),
        "networks/layers.py",
    ),
    Mutation(
        "layers after the memory without residual connections",
        "return self._layers(params, x, self.head_hidden)",
        "return layers(params, x, self.head_hidden, self.activation)",
        (LAYERS + "test_residual_connections_by_hand",),
        "networks/composed.py",
    ),
    Mutation(
        "residual connections that nothing has",
        "if self.residual and not any(",
        "if False and not any(",
        (LAYERS + "test_residual_connections_without_an_effect_are_refused",),
        "networks/composed.py",
    ),
    Mutation(
        "a stack without its residual connections",
        'return out + y["x"] if self.residual and y["x"].shape == out.shape else out',
        "return out",
        (MEMORIES + "test_sequences_equal_float64_equations[stack of lru-never]",),
        "memories/stack.py",
    ),
    Mutation(
        "the scan is not recomputed",
        "scan = _recomputed(self.memory.scan, rounding.value)",
        "scan = self.memory.scan",
        (MEMORIES + "test_rematerialised_memories_take_less_memory",),
        "memories/stack.py",
    ),
    Mutation(
        "the critic has the memory of the actor",
        'actor | {"critic": self.critic.torso(self, self.critic_readers)}',
        'actor | {"critic": self.actor.torso(self, self.critic_readers)}',
        (TOWER + "test_towers_of_other_sizes_by_hand",),
        "networks/composed.py",
    ),
    Mutation(
        "a tower without hidden layers has those of the network",
        "left_out = own is None or isinstance(own, Same)",
        "left_out = not own or isinstance(own, Same)",
        (TOWER + "test_what_a_tower_leaves_out_follows_the_network",),
        "networks/composed.py",
    ),
    Mutation(
        "layer norm after the activation",
        'y = ACTIVATIONS[activation](layer_norm(layer["norm"], y) if "norm" in layer else y)',
        'y = ACTIVATIONS[activation](y)\n        y = layer_norm(layer["norm"], y) if "norm" in layer else y',
        (LAYERS + "test_layer_norm_by_hand",),
        "networks/layers.py",
    ),
    Mutation(
        "policy and value have the gain of each other",
        "value_key, num_values, self.value_gain",
        "value_key, num_values, self.policy_gain",
        (LAYERS + "test_gains_scale_the_orthogonal_weights_of_their_layers",),
        "networks/composed.py",
    ),
]
