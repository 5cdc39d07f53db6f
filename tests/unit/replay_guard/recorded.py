"""Landfall's recorded histories, in the worker form and as Azure's HTTP API shows them."""

from __future__ import annotations

import copy
import json
from datetime import timedelta

from azure.durable_functions import Orchestrator

from replay_guard import protocol
from replay_guard.check import read_document
from replay_guard.history import EventType, parse_time, time_text
from replay_guard.outcome import Replayed
from replay_guard.replay import replay
from replay_guard.worker import Handle
from tests.replay.durable_task_orchestrator import as_version_2, create
from tests.replay.recording import HISTORIES, ORCHESTRATORS, STEP_EVENTS, Document

HANDLES: dict[str, Handle] = {
    name: Orchestrator.create(each) for name, each in ORCHESTRATORS.items()
}
HANDLES_OF_2: dict[str, Handle] = {name: create(each) for name, each in ORCHESTRATORS.items()}
_NAMES = {
    int(kind): "".join(word.capitalize() for word in kind.name.split("_")) for kind in EventType
}


def replayed(document: Document, *, version: int = 1) -> Replayed:
    """Replay a history on a version of the SDK."""
    history = read_document(document)
    if version == 1:
        return replay(history, HANDLES[history.orchestrator])
    return replay(history, HANDLES_OF_2[history.orchestrator], ask=protocol.ask)


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
        if event["EventType"] == EventType.ORCHESTRATOR_STARTED
    ]
    if len(starts) == 1:
        return None
    document["trigger"]["history"] = events[: starts[-1]]
    return document


def as_azure_shows(  # noqa: C901 - the original is one long switch, too
    recording: Document, *, delay_ms: int = 0, version: int = 1
) -> Document | None:
    """The status that the Durable extension's HTTP API gives for a running instance.

    Written after DurableClient.GetDurableOrchestrationStatusAsync, and apart from the code that
    reads it. The inputs of activities are arrays of one JSON text, as the extension stores them,
    and with version 2 of the SDK the text alone.

    Args:
        recording: a recorded call.
        delay_ms: between the beginning of an episode and each of its steps.
        version: of the SDK.
    """
    document = closed(recording)
    if document is None:
        return None
    shown: list[Document] = []
    scheduled: dict[int, Document] = {}
    later = timedelta()
    for recorded in document["trigger"]["history"]:
        event = recorded if version == 1 else as_version_2(recorded)
        kind = event["EventType"]
        line = {**event, "EventType": _NAMES[kind]}
        for key in ("EventId", "IsPlayed", "Actions", "RetryOf", "TimerId", "Version", "Tags"):
            line.pop(key, None)
        if kind == EventType.ORCHESTRATOR_STARTED:
            later = timedelta()
        if kind in STEP_EVENTS:
            later += timedelta(milliseconds=delay_ms)
            line["Timestamp"] = time_text(parse_time(event["Timestamp"]) + later)
        if kind == EventType.TASK_SCHEDULED and version == 1:
            line["Input"] = json.dumps([event["Input"]])
        if kind in {EventType.TASK_SCHEDULED, EventType.SUB_ORCHESTRATION_INSTANCE_CREATED}:
            scheduled[event["EventId"]] = line
        if kind == EventType.EXECUTION_STARTED:
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
        if kind not in {EventType.ORCHESTRATOR_STARTED, EventType.ORCHESTRATOR_COMPLETED}:
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
