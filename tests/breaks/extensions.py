"""Breaks of extensions and their chain."""

from breaks.base import Mutation

EXTENSION = "tests/extensions/test_extension.py::"
CHAIN = "ppo/extension.py"
ACTS = EXTENSION + "test_an_extension_that_acts_replaces_actions_and_not_log_probabilities"
NUMBERS = EXTENSION + "test_numbers_are_those_of_the_loss_and_then_of_the_optimiser"
TRAINED = EXTENSION + "test_parameters_of_an_extension_are_trained_and_kept_apart_from_those_of_the_network"
TWICE = EXTENSION + "test_the_same_class_twice_has_two_states_keys_and_metrics"
EXTRAS = EXTENSION + "test_extras_reach_the_rows_of_their_extension_and_are_zero_in_invalid_rows"
TAKEN = "tests/extensions/test_extension.py::test_a_metric_whose_name_is_taken_is_refused"
MUTATIONS = [
    Mutation(
        "a metric of an extension replaces the norm of the gradient",
        "merged(metrics, minibatch.metrics, norm, observed.metrics)",
        "merged(metrics, minibatch.metrics, norm) | observed.metrics",
        (TAKEN,),
        "ppax/ppo/ppo.py",
    ),
    Mutation(
        "a metric of the rollout replaces a term of the loss",
        "merged(whole, of_first, of_rollout, lowest",
        "merged(whole | of_rollout, of_first, lowest",
        (TAKEN,),
        "ppax/ppo/diagnostics.py",
    ),
    Mutation(
        "a metric of an agent replaces a column of log rows",
        "        if name in columns:\n",
        "        if False:\n",
        ("tests/extensions/test_extension.py::test_a_metric_with_the_name_of_a_column_of_log_rows_is_refused",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "a critic's term that is not per row is not refused",
        '    _require_rows("critic", {"value_loss": value}, batch)\n',
        "",
        ("tests/extensions/test_terms.py::test_the_part_whose_term_is_not_per_row_is_named",),
        "ppax/ppo/losses.py",
    ),
    Mutation(
        "extensions are called from the last to the first",
        "{name_of(extension): extension for extension in extensions}",
        "{name_of(extension): extension for extension in reversed(extensions)}",
        (EXTENSION + "test_hooks_are_called_in_the_order_of_the_tuple",),
        CHAIN,
    ),
    Mutation(
        "all extensions begin with the same key",
        "jax.random.fold_in(key, folded(name))",
        "jax.random.fold_in(key, 1)",
        (TWICE,),
        CHAIN,
    ),
    Mutation(
        "two extensions of one class have metrics of the same names",
        'metric if same[0] == name else f"{name}_{metric}"',
        "metric",
        (TWICE,),
        CHAIN,
    ),
    Mutation(
        "two extensions of one name are accepted",
        "        if twice is not None:",
        "        if False:",
        (EXTENSION + "test_two_of_one_name_are_refused",),
        CHAIN,
    ),
    Mutation(
        "an extension without hooks says that a gradient step proceeds",
        "        return Observed(inner)\n",
        "        return Observed(inner, jnp.bool_(True))\n",
        (EXTENSION + "test_an_extension_without_hooks_adds_nothing_to_the_program",),
        CHAIN,
    ),
    Mutation(
        "a gradient step proceeds whatever an extension observes",
        "minibatch.learns if observed.proceed is None else minibatch.learns & observed.proceed",
        "minibatch.learns",
        (EXTENSION + "test_a_gradient_step_that_does_not_proceed_leaves_parameters_and_optimiser",),
        "ppax/ppo/ppo.py",
    ),
    Mutation(
        "the loss has the numbers of the agent alone",
        "mean_gradient(partial(minibatch_loss, agent), trained, chunk",
        "mean_gradient(partial(minibatch_loss, self), trained, chunk",
        (NUMBERS,),
        "ppax/ppo/ppo.py",
    ),
    Mutation(
        "the optimiser has the numbers from before the observation",
        "adapted = extensions.adapt(self, observed.inner)",
        "adapted = agent",
        (NUMBERS,),
        "ppax/ppo/ppo.py",
    ),
    Mutation(
        "parameters of extensions stay among those of the network",
        "network = {name: x for name, x in params.items() if name != TRAINED}",
        "network = dict(params)",
        (TRAINED, EXTENSION + "test_each_extension_has_its_own_parameters"),
        CHAIN,
    ),
    Mutation(
        "trained parameters of extensions are forgotten",
        "one._replace(params=own.get(name, ()))",
        "one",
        (TRAINED, EXTENSION + "test_each_extension_has_its_own_parameters"),
        CHAIN,
    ),
    Mutation(
        "a network whose parameters are no dict goes on",
        "if not isinstance(learner.params, dict) or TRAINED in learner.params:",
        "if False:",
        (EXTENSION + "test_parameters_beside_those_of_a_network_that_are_no_dict_are_refused",),
        CHAIN,
    ),
    Mutation(
        "an extension gets the extras of the first one",
        "return steps.extras[name] if",
        "return next(iter(steps.extras.values())) if",
        (EXTRAS,),
        CHAIN,
    ),
    Mutation(
        "extras keep what invalid rows have",
        "    emptied = zero_rows(steps.valid, (steps, Targets(*jax.lax.stop_gradient(targets))))\n",
        "    emptied = zero_rows(steps.valid, (steps, Targets(*jax.lax.stop_gradient(targets))))\n"
        "    emptied = dataclasses.replace(emptied[0], extras=steps.extras), emptied[1]\n",
        (EXTRAS,),
        "ppo/batches.py",
    ),
    Mutation(
        "a metric takes the place of another of its name",
        '    if taken is not None:\n        raise ConfigError(\n            f"extensions.{name}: the metric',
        '    if False:\n        raise ConfigError(\n            f"extensions.{name}: the metric',
        (
            EXTENSION + "test_a_metric_whose_name_is_taken_is_refused",
            EXTENSION + "test_two_extensions_do_not_share_a_metric",
        ),
        CHAIN,
    ),
    Mutation(
        "metrics of `before` may have names of PPO's own",
        "            require_new(name, table, metrics)\n",
        "",
        (EXTENSION + "test_a_metric_whose_name_is_taken_is_refused",),
        CHAIN,
    ),
    Mutation(
        "an extension that acts does not see the choice before",
        "choice = choice._replace(action=action)",
        "last = choice._replace(action=action)",
        (ACTS,),
        CHAIN,
    ),
    Mutation(
        "the state of acting stays as it began",
        "policy = policy._replace(carry=policy.carry._replace(extensions=states))",
        "policy = policy._replace(carry=policy.carry)",
        (ACTS,),
        CHAIN,
    ),
    Mutation(
        "log-probabilities are those of the most likely action",
        "        return decision_of(policy, choice.action)\n",
        "        decision = decision_of(policy, choice.action)\n"
        "        return decision._replace(log_prob=policy.distribution.log_prob(policy.distribution.mode()))\n",
        (ACTS,),
        CHAIN,
    ),
    Mutation(
        "extensions act in evaluations on the host",
        "    alone = without_extensions(agent)\n",
        "    alone = agent\n",
        (EXTENSION + "test_an_evaluation_acts_without_extensions",),
        "training/backends.py",
    ),
    Mutation(
        "compiled evaluations call the agent's act",
        "    action = distribution.mode() if deterministic else distribution.sample(act_key)\n",
        "    action = distribution.mode() if deterministic else distribution.sample(act_key)\n"
        "    action = agent.act(learner, actor.carry, actor.obs, actor.first, actor.action_mask, act_key).action\n",
        (EXTENSION + "test_an_evaluation_acts_without_extensions",),
        "training/episodes.py",
    ),
]
