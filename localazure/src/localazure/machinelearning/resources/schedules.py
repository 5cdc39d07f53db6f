"""Schedules of jobs.

https://learn.microsoft.com/rest/api/azureml/schedules
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from aiohttp import web

from localazure.machinelearning.arm import (
    COMPUTE,
    WORKSPACE,
    WORKSPACE_PATH,
    add_reads,
    envelope,
    find_resource,
    operation_headers,
    operation_status,
    path_name,
    put_response,
    read_body,
    read_object,
)
from localazure.machinelearning.errors import invalid
from localazure.machinelearning.resources.workspace import LOCATION_PATH
from localazure.machinelearning.schedules import (
    SCHEDULES,
    delete_schedule,
    put_schedule,
    start_job,
)
from localazure.machinelearning.store import Resource

routes = web.RouteTableDef()

_PATH = f"{WORKSPACE_PATH}/{SCHEDULES}"
_STATUSES = "mfeOperationsStatus"
_VIEWS = {"EnabledOnly": (True,), "DisabledOnly": (False,), "All": (True, False)}


@routes.put(f"{_PATH}/{{name}}")
async def put_one_schedule(request: web.Request) -> web.Response:
    """Create, change, enable or disable a schedule: a long-running operation, as on Azure.

    The schedule is durable before the response, so the first poll returns success.
    """
    workspace = request.app[WORKSPACE]
    name, body = path_name(request), await read_body(request)
    resource, is_new = await workspace.database.write(
        lambda connection: put_schedule(connection, name, body, workspace.clock())
    )
    request.app[COMPUTE].wake()
    headers = _operation(request, f"put-{name}")
    return put_response(_document(request, resource), headers, is_new=is_new, goes_on=True)


@routes.post(f"{_PATH}/{{name}}/trigger")
async def trigger_schedule(request: web.Request) -> web.Response:
    """Start the job of a schedule once, immediately."""
    workspace = request.app[WORKSPACE]
    resource = find_resource(request, SCHEDULES, "schedule")
    body = await read_object(request)
    try:
        at = datetime.fromisoformat(body["scheduleTime"]).timestamp()
    except KeyError:
        at = workspace.clock()
    except (TypeError, ValueError) as error:
        raise invalid(f"scheduleTime {body['scheduleTime']!r} is not a time") from error
    job = await workspace.database.write(
        lambda connection: start_job(workspace.jobs(connection), resource, at)
    )
    request.app[COMPUTE].wake()
    return web.json_response({"scheduleActionType": "CreateJob", "submissionId": job})


@routes.delete(f"{_PATH}/{{name}}")
async def delete_one_schedule(request: web.Request) -> web.Response:
    """Delete a schedule that is disabled."""
    workspace = request.app[WORKSPACE]
    name = path_name(request)
    if not await workspace.database.write(lambda connection: delete_schedule(connection, name)):
        return web.Response(status=204)
    return web.Response(status=202, headers=_operation(request, f"delete-{name}"))


@routes.get(f"{LOCATION_PATH}/{_STATUSES}/{{operation}}")
async def get_operation(request: web.Request) -> web.Response:
    """State of a schedule's PUT or DELETE, which both complete before their response."""
    return operation_status(request, "Succeeded")


def _document(request: web.Request, resource: Resource) -> dict[str, Any]:
    trigger = dict(resource.properties["trigger"])
    if "frequency" in trigger:  # the SDK sends lower case, Azure returns it capitalized
        trigger["frequency"] = str(trigger["frequency"]).capitalize()
    properties = {
        "tags": {},
        "properties": {},
        **resource.properties,
        "trigger": trigger,
        "provisioningState": "Succeeded",
    }
    return envelope(request.app[WORKSPACE], resource, properties)


def _is_shown(request: web.Request, resource: Resource) -> bool:
    """Whether a list includes the schedule; by default, only enabled schedules."""
    view = request.query.get("listViewType", "EnabledOnly")
    if view not in _VIEWS:
        raise invalid(f"listViewType is {view!r}; use {', '.join(_VIEWS)}")
    return resource.properties["isEnabled"] in _VIEWS[view]


def _operation(request: web.Request, operation: str) -> dict[str, str]:
    return operation_headers(request, _STATUSES, operation, version="2023-06-01-preview")


add_reads(routes, SCHEDULES, "schedule", _document, _is_shown)
