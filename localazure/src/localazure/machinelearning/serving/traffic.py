"""Divides an endpoint's requests among its deployments. Pure.

https://learn.microsoft.com/azure/machine-learning/how-to-safely-rollout-online-endpoints
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from localazure.machinelearning.errors import invalid

WHOLE_PERCENT = 100
MIRROR_LIMIT_PERCENT = 50


def parse_traffic(
    properties: Mapping[str, object], *, deployments: Collection[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """The traffic and the mirror traffic of an endpoint, in percent by deployment.

    Args:
        properties: the endpoint's properties; `traffic` and `mirrorTraffic` may be missing.
        deployments: the names of the endpoint's deployments, in lower case.

    Raises:
        ArmError: 400, the values violate one of Azure ML's rules.
    """
    traffic = _percentages(properties, "traffic", deployments)
    mirror = _percentages(properties, "mirrorTraffic", deployments)
    total = sum(traffic.values())
    if total not in (0, WHOLE_PERCENT):
        raise invalid(f"traffic adds up to {total} %; it must add up to 0 or 100")
    if len(mirror) > 1:
        raise invalid("mirrorTraffic names more than one deployment; one can be mirrored to")
    for name, percent in mirror.items():
        if percent > MIRROR_LIMIT_PERCENT:
            raise invalid(f"mirrorTraffic of {name!r} is {percent} %; at most 50 is possible")
        if traffic.get(name):
            raise invalid(f"deployment {name!r} has traffic, so it cannot have mirrorTraffic, too")
    return traffic, mirror


def choose(traffic: Mapping[str, int], draw: float) -> str | None:
    """Choose the deployment for a request; None if no deployment has traffic.

    Args:
        traffic: percent by deployment, 100 in all.
        draw: a random number in [0, 1).
    """
    position = int(draw * sum(traffic.values()))
    for name, percent in traffic.items():
        if position < percent:
            return name
        position -= percent
    return None


def choose_mirror(mirror: Mapping[str, int], draw: float) -> str | None:
    """Choose the deployment for a copy of a request, or None; the arguments of `choose`."""
    return next((name for name, share in mirror.items() if draw * WHOLE_PERCENT < share), None)


def _percentages(
    properties: Mapping[str, object], key: str, deployments: Collection[str]
) -> dict[str, int]:
    shares = properties.get(key) or {}
    if not isinstance(shares, dict):
        raise invalid(f"{key} must map deployments to percentages")
    percentages: dict[str, int] = {}
    for name, percent in shares.items():  # pyright: ignore[reportUnknownVariableType] - checked here
        if not isinstance(name, str) or not isinstance(percent, int) or not 0 <= percent <= 100:  # noqa: PLR2004 - percent
            raise invalid(f"{key} of {name!r} is {percent!r}; it must be a number from 0 to 100")
        if name.lower() not in deployments:
            raise invalid(f"{key} names deployment {name!r}, which the endpoint does not have")
        if percent:
            percentages[name.lower()] = percent
    return percentages
