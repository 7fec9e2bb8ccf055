"""Breaks that random compositions must see."""

from breaks.base import Mutation

MUTATIONS: list[Mutation] = [
    Mutation(
        "actions are drawn under the mask of the first observation",
        "first=out.first, action_mask=out.action_mask, carry=decision.carry",
        "first=out.first, action_mask=actor.action_mask, carry=decision.carry",
        ("tests/test_compositions.py::test_one_update[0]",),
        "ppax/collect.py",
    ),
]
