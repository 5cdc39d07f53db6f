"""Families of resources that the local workspace does not have: 501 with what to use instead."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from localazure.machinelearning.arm import WORKSPACE_PATH
from localazure.machinelearning.errors import ArmError

routes = web.RouteTableDef()

_EXISTING: Final = (
    "it has jobs, computes, data, models, environments, components, datastores, online and batch "
    "endpoints"
)
# Segment of ARM's path → the family's name, and what to use instead.
# https://learn.microsoft.com/rest/api/azureml/operation-groups
_FAMILIES: Final = {
    "featurestoreEntities": ("feature stores", _EXISTING),
    "featuresets": ("feature stores", _EXISTING),
    "schedules": ("schedules", "submit jobs from a timer trigger of an app, or from cron"),
    "serverlessEndpoints": ("serverless endpoints", _EXISTING),
}


@routes.route("*", f"{WORKSPACE_PATH}/{{family:{'|'.join(_FAMILIES)}}}{{rest:(/.*)?}}")
async def refuse(request: web.Request) -> web.Response:
    """Refuse the request with 501: the family's name, and what to use instead."""
    raise not_covered(request.match_info["family"])


def not_covered(family: str) -> ArmError:
    """The refusal of a family, by its segment of ARM's path."""
    name, instead = _FAMILIES[family]
    text = f"{name} are not covered by the local workspace; {instead}"
    return ArmError(501, "NotImplemented", text)
