from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.serving.traffic import choose, choose_mirror, parse_traffic

DEPLOYMENTS = ["blue", "green"]
DRAWS = 1000


@given(st.integers(0, 100))
def test_each_deployment_gets_its_share(percent: int) -> None:
    traffic = {"blue": percent, "green": 100 - percent}
    chosen = [choose(traffic, draw / DRAWS) for draw in range(DRAWS)]
    assert chosen.count("blue") == pytest.approx(percent * DRAWS / 100, abs=1)
    assert chosen.count("blue") + chosen.count("green") == DRAWS


def test_without_traffic_no_deployment_is_chosen() -> None:
    assert choose({}, 0.5) is None
    assert choose({"blue": 0}, 0.5) is None


@given(st.integers(0, 50))
def test_the_given_percentage_of_requests_is_mirrored(percent: int) -> None:
    mirrored = [choose_mirror({"green": percent}, draw / DRAWS) for draw in range(DRAWS)]
    assert mirrored.count("green") == pytest.approx(percent * DRAWS / 100, abs=1)


def test_names_are_compared_in_lower_case_and_zeroes_left_out() -> None:
    properties = {"traffic": {"Blue": 100, "green": 0}, "mirrorTraffic": {"GREEN": 20}}
    assert parse_traffic(properties, deployments=DEPLOYMENTS) == ({"blue": 100}, {"green": 20})


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"traffic": {"blue": 60}}, "adds up to 60 %"),
        ({"traffic": {"red": 100}}, "'red'"),
        ({"traffic": {"blue": 101}}, "from 0 to 100"),
        ({"traffic": ["blue"]}, "must map"),
        ({"mirrorTraffic": {"green": 51}}, "at most 50"),
        ({"mirrorTraffic": {"green": 10, "blue": 10}}, "more than one"),
        ({"traffic": {"blue": 100}, "mirrorTraffic": {"blue": 10}}, "has traffic"),
    ],
)
def test_a_broken_rule_is_refused(properties: dict[str, object], reason: str) -> None:
    with pytest.raises(ArmError, match=reason):
        parse_traffic(properties, deployments=DEPLOYMENTS)
