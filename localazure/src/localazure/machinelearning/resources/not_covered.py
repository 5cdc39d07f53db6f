"""Families of resources that the local workspace does not have: 501 with the family's name."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from localazure.machinelearning.arm import WORKSPACE_PATH
from localazure.machinelearning.errors import ArmError

routes = web.RouteTableDef()

# Segment of ARM's path → the family's name.
# https://learn.microsoft.com/rest/api/azureml/operation-groups
_FAMILIES: Final = {
    "featurestoreEntities": "feature stores",
    "featuresets": "feature stores",
    "serverlessEndpoints": "serverless endpoints",
}


@routes.route("*", f"{WORKSPACE_PATH}/{{family:{'|'.join(_FAMILIES)}}}{{rest:(/.*)?}}")
async def refuse(request: web.Request) -> web.Response:
    """Refuse the request with 501 and the family's name."""
    family = _FAMILIES[request.match_info["family"]]
    raise ArmError(
        501,
        "NotImplemented",
        f"{family} are not covered by the local workspace; it has jobs, computes, data, models, "
        "environments, components, schedules, datastores, online and batch endpoints",
    )
