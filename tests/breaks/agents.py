"""Breaks of many agents, layouts over devices, metrics of groups, command lines of groups and records of objects."""

from breaks.base import Mutation

PARALLEL = "tests/test_parallel.py::"

DEVICES = [
    Mutation(
        "devices that do not divide a minibatch drop sequences",
        "            if size % asked:",
        "            if False:",
        (PARALLEL + "test_devices_that_do_not_divide_are_refused",),
        "ppax/program.py",
    ),
    Mutation(
        "devices are not checked with the other sizes",
        "learner.program.num_devices(env.num_envs, minibatch, length)\n        except",
        "pass\n        except",
        (PARALLEL + "test_sizes_are_checked_before_anything_is_made",),
        "ppax/train.py",
    ),
    Mutation(
        "an axis of the user's couples seeds",
        'AXIS = "ppax.parallel"',
        'AXIS = "devices"',
        (PARALLEL + "test_an_axis_of_the_users_exchanges_nothing",),
        "ppax/parallel.py",
    ),
    Mutation(
        "a split inside the user's split",
        "return 1 if jax.sharding.get_abstract_mesh().manual_axes else len(jax.local_devices())",
        "return len(jax.local_devices())",
        (PARALLEL + "test_the_rule_is_one_device_where_the_user_has_split_the_program",),
        "ppax/parallel.py",
    ),
]

METRICS = "tests/test_metrics.py::"
REDUCTIONS = [
    Mutation(
        "metrics of groups are reduced by a part of their names",
        'kind = kinds.get(name, "mean")',
        'kind = "max" if "_max" in name else "min" if "_min" in name else kinds.get(name, "mean")',
        (METRICS + "test_episodes_of_groups_are_means_whatever_the_groups_are_called",),
        "ppax/metrics.py",
    ),
    Mutation(
        "a group's extremes become means",
        'out[full], reductions[full] = x, kinds[group].get(name, "mean")',
        'out[full], reductions[full] = x, "mean"',
        (METRICS + "test_metrics_of_groups_are_joined_as_declared",),
        "ppax/groups.py",
    ),
    Mutation(
        "a player's extremes become means",
        "Table(whole | own, (*kinds.items(), *reductions))",
        "Table(whole | own, (*kinds.items(),))",
        (METRICS + "test_metrics_of_players_keep_their_reductions",),
        "ppax/independent.py",
    ),
    Mutation(
        "the last iteration's metric is summed",
        'forgetting = jnp.where(each(totals.kinds(), "last"), 0.0, totals.means)',
        "forgetting = totals.means",
        (METRICS + "test_over_iterations_by_hand",),
        "ppax/train.py",
    ),
]

MUTATIONS: list[Mutation] = [*DEVICES, *REDUCTIONS]
