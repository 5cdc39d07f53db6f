"""Run events of Azure ML, parsed and checked. Pure: an event is a hint, a GET of the job decides.

Source: https://learn.microsoft.com/azure/event-grid/event-schema-machine-learning. Samples there
write one key in several cases, so keys are compared without case; unknown keys are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from orchestrations.errors import InvalidEvent

EVENT_TYPES = frozenset(
    {
        "microsoft.machinelearningservices.runcompleted",
        "microsoft.machinelearningservices.runstatuschanged",
    }
)
_SUBJECT = re.compile(r"^/?experiments/[^/]+/runs/(?P<run>[^/]+)$", re.IGNORECASE)
# https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
_WORKSPACE = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/(?P<workspace>[^/]+)/?$",
    re.IGNORECASE,
)


def parse_job_event(*, event_id: str, event_type: str, subject: str, data: object) -> str:
    """The run that an event is about: the name of its job, and the id of its instance.

    Raises:
        InvalidEvent: it is of another type, or names no run.
    """
    if event_type.lower() not in EVENT_TYPES:
        raise InvalidEvent(
            f"event {event_id}: type {event_type!r} is neither RunCompleted nor RunStatusChanged "
            "of Microsoft.MachineLearningServices",
            cause="unknown-job-event-type",
        )
    fields = cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {}
    run = next((value for key, value in fields.items() if key.lower() == "runid"), None)
    if run is None:
        match = _SUBJECT.match(subject)
        run = None if match is None else match["run"]
    if not isinstance(run, str) or _RUN.fullmatch(run) is None:
        raise InvalidEvent(
            f"event {event_id}: neither data.runId {run!r} nor subject {subject!r} names a run",
            cause="no-run-named",
        )
    return run


def check_workspace(
    topic: str, *, event_id: str, subscription_id: str, resource_group: str, workspace: str
) -> None:
    """Return when the event comes from this workspace, or names no source.

    Args:
        topic: `topic` of an Event Grid event, `source` of a CloudEvent.
        event_id: for the message.
        subscription_id: of the workspace that the app is configured for.
        resource_group: the same.
        workspace: the same.

    Raises:
        InvalidEvent: it names another workspace.
    """
    match = _WORKSPACE.search(topic)
    if match is None:
        return
    named = (match["subscription"], match["group"], match["workspace"])
    configured = (subscription_id, resource_group, workspace)
    if [each.lower() for each in named] != [each.lower() for each in configured]:
        raise InvalidEvent(
            f"event {event_id}: topic {topic!r} is not workspace {workspace!r} of resource group "
            f"{resource_group!r}",
            cause="other-workspace",
        )
