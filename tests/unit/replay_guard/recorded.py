"""Landfall's recorded histories, in the worker form and as Azure's HTTP API shows them."""

from __future__ import annotations

import copy
import json
from datetime import timedelta

from azure.durable_functions import Orchestrator
from azure.durable_functions.models.history.HistoryEventType import HistoryEventType as Kind

from orchestrations.landing.forgetting import forgetting
from orchestrations.landing.freezing import freezing
from orchestrations.landing.landing import landing
from orchestrations.rollout.rollout import rollout
from orchestrations.training.promotion import promotion
from orchestrations.training.retraining import retraining
from replay_guard.history import parse_time, time_text
from replay_guard.worker import Handle
from tests.replay.recording import HISTORIES, STEP_EVENTS, Document

HANDLES: dict[str, Handle] = {
    each.__name__: Orchestrator.create(each)
    for each in (landing, freezing, forgetting, retraining, promotion, rollout)
}
_NAMES = {int(kind): "".join(word.capitalize() for word in kind.name.split("_")) for kind in Kind}


def recordings() -> dict[str, Document]:
    """Recorded calls by the name of their file."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(HISTORIES.glob("*.json"))}


def closed(recording: Document) -> Document | None:
    """The recording without its last episode, whose steps are not recorded; None if it has one."""
    document = copy.deepcopy(recording)
    events = document["trigger"]["history"]
    starts = [
        place
        for place, event in enumerate(events)
        if event["EventType"] == int(Kind.ORCHESTRATOR_STARTED)
    ]
    if len(starts) == 1:
        return None
    document["trigger"]["history"] = events[: starts[-1]]
    return document


def as_azure_shows(  # noqa: C901 - the original is one long switch, too
    recording: Document, *, delay_ms: int = 0
) -> Document | None:
    """The status that the Durable extension's HTTP API gives for a running instance.

    Written after DurableClient.GetDurableOrchestrationStatusAsync, and apart from the code that
    reads it. The inputs of activities are arrays of one JSON text, as the extension stores them.

    Args:
        recording: a recorded call.
        delay_ms: between the beginning of an episode and each of its steps.
    """
    document = closed(recording)
    if document is None:
        return None
    shown: list[Document] = []
    scheduled: dict[int, Document] = {}
    later = timedelta()
    for event in document["trigger"]["history"]:
        kind = event["EventType"]
        line = {**event, "EventType": _NAMES[kind]}
        for key in ("EventId", "IsPlayed", "Actions", "RetryOf", "TimerId", "Version", "Tags"):
            line.pop(key, None)
        if kind == int(Kind.ORCHESTRATOR_STARTED):
            later = timedelta()
        if kind in STEP_EVENTS:
            later += timedelta(milliseconds=delay_ms)
            line["Timestamp"] = time_text(parse_time(event["Timestamp"]) + later)
        if kind == int(Kind.TASK_SCHEDULED):
            line["Input"] = json.dumps([event["Input"]])
        if kind in {int(Kind.TASK_SCHEDULED), int(Kind.SUB_ORCHESTRATION_INSTANCE_CREATED)}:
            scheduled[event["EventId"]] = line
        if kind == int(Kind.EXECUTION_STARTED):
            line["FunctionName"] = line.pop("Name")
            line.pop("OrchestrationInstance")
            line.pop("ParentInstance")
        if "TaskScheduledId" in event:
            begun = scheduled[event["TaskScheduledId"]]
            del line["TaskScheduledId"]
            shown.remove(begun)
            line |= {
                "ScheduledTime": begun["Timestamp"],
                "FunctionName": begun["Name"],
                "Input": begun["Input"],
            }
        if "Result" in line:
            line["Result"] = json.loads(line["Result"])
        if kind not in {int(Kind.ORCHESTRATOR_STARTED), int(Kind.ORCHESTRATOR_COMPLETED)}:
            shown.append(line)
    return {
        "name": shown[0]["FunctionName"],
        "instanceId": document["trigger"]["instanceId"],
        "runtimeStatus": "Running",
        "input": document["trigger"]["input"],
        "customStatus": document["episodes"][-2]["customStatus"],
        "output": None,
        "createdTime": shown[0]["Timestamp"],
        "lastUpdatedTime": shown[-1]["Timestamp"],
        "historyEvents": shown,
    }
