"""Changes to a configuration: of extensions, which are tables by name, and an empty list without any."""

import pytest

from ppax import config

RND = {"rnd": {"coef": 0.5}}


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ([], RND, RND),  # as every resolved configuration without extensions has it
        (RND, [], []),
        (RND, {"ppg": {}}, RND | {"ppg": {}}),
        (RND, {"rnd": {"coef": 0.1}}, {"rnd": {"coef": 0.1}}),
    ],
)
def test_extensions_are_added_to_those_that_a_configuration_has(before, change, after):
    plan = config.overridden({"agent": {"extensions": before}}, {"agent": {"extensions": change}})
    assert plan["agent"]["extensions"] == after
