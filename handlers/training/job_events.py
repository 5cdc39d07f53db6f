"""Parse and check events of Azure ML about runs, and Landfall's own. Pure.

An event is a hint; the state of the job, or of the queue, is read.

Source: https://learn.microsoft.com/azure/event-grid/event-schema-machine-learning. The samples
there vary the case of keys, so keys are compared without case; unknown keys are ignored.
"""

from __future__ import annotations

import re

from handlers.platform.event_envelope import EventEnvelope, lower_keys
from handlers.platform.service_bus import NODES_OFFERED
from handlers.platform.settings import Settings

EVENT_TYPES = frozenset(
    {
        "microsoft.machinelearningservices.runcompleted",
        "microsoft.machinelearningservices.runstatuschanged",
        NODES_OFFERED.lower(),
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


def parse_job_event(event: EventEnvelope) -> str:
    """The run of an event: the name of its job, and also the id of its instance.

    Raises:
        InvalidEvent: the event is of another type, or names no run.
    """
    if event.type.lower() not in EVENT_TYPES:
        raise event.refusal(
            f"type {event.type!r} is neither RunCompleted nor RunStatusChanged "
            "of Microsoft.MachineLearningServices",
            cause="unknown-job-event-type",
        )
    run = lower_keys(event.data).get("runid")
    if run is None:
        match = _SUBJECT.match(event.subject)
        run = None if match is None else match["run"]
    if not isinstance(run, str) or _RUN.fullmatch(run) is None:
        raise event.refusal(
            f"neither data.runId {run!r} nor subject {event.subject!r} names a run",
            cause="no-run-named",
        )
    return run


def check_workspace(event: EventEnvelope, settings: Settings) -> None:
    """Check that the event does not come from another workspace than the one of the settings.

    Raises:
        InvalidEvent: the event names another workspace.
    """
    names = ("AZUREML_SUBSCRIPTION_ID", "AZUREML_RESOURCE_GROUP", "AZUREML_WORKSPACE_NAME")
    ours = [settings.required(name) for name in names]
    match = _WORKSPACE.search(event.source)
    if match is None:
        return
    named = (match["subscription"], match["group"], match["workspace"])
    if [each.lower() for each in named] != [each.lower() for each in ours]:
        raise event.refusal(
            f"topic {event.source!r} is not workspace {ours[2]!r} of resource group {ours[1]!r}",
            cause="other-workspace",
        )
