"""Calls an orchestrator of azure-functions-durable 2, in the Durable Task protocol.

That version gets an OrchestratorRequest, as base64, in place of the orchestrator-in document, and
gives an OrchestratorResponse. Here both are converted, so that replay is the same. What differs:

- the answer has only the actions that are new, with their ids. A retry policy's further attempts
  and timers are actions, too
- the SDK itself compares the kinds and names of earlier actions with the history
- an input is encoded once, not twice

Only an app of that version has durabletask: `worker` imports this module for such an app.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import warnings
from types import SimpleNamespace
from typing import Any, Final, cast

import durabletask.internal.orchestrator_service_pb2 as pb
from durabletask.task import NonDeterminismError
from google.protobuf.json_format import ParseDict, ParseError

from replay_guard.actions import ActionType
from replay_guard.history import NOT_REPEATED, CannotCheck, Document, EventType
from replay_guard.payload import parse
from replay_guard.redaction import child_input
from replay_guard.worker import Handle

_FAILURES: Final = (EventType.TASK_FAILED, EventType.SUB_ORCHESTRATION_INSTANCE_FAILED)

# From durabletask.internal.orchestration_entity_context
_OTHER_LOCK: Final = re.compile(
    r"Unexpected lock acquire for critical section ID '(?P<recorded>[^']+)' "
    r"\(expected '(?P<taken>[^']+)'\)"
)


def ask(handle: Handle, trigger: Document) -> Document:
    """The answer to an orchestrator-in document, in the form of an orchestrator-out document.

    Its actions have their ids. `NOT_REPEATED` is the SDK's text where the orchestrator does not
    take its earlier steps again, None where it does.

    Raises:
        CannotCheck: the SDK raised an error that is not an orchestrator's failure.
    """
    level = logging.root.manager.disable
    logging.disable()  # the SDK logs each episode
    try:
        answer = _answer(handle, trigger)
        # The SDK derives a lock's id from the clock, which an exported history does not record.
        while lock := _OTHER_LOCK.search(answer.get("error", "")):
            text = json.dumps(trigger)
            if lock["recorded"] not in text:
                break
            trigger = json.loads(text.replace(lock["recorded"], lock["taken"]))
            answer = _answer(handle, trigger)
    finally:
        logging.disable(level)
    return answer


def _answer(handle: Handle, trigger: Document) -> Document:
    try:
        request = base64.b64encode(_request(trigger).SerializeToString()).decode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names of version 1, and about the SDK's own codec
            answer = handle(SimpleNamespace(body=request))
            if not isinstance(answer, str):  # from 2.0.0rc3 on
                answer = asyncio.run(answer)
    except ParseError as error:
        raise CannotCheck(f"the history is damaged: {error}") from error
    except Exception as error:  # a failure of the orchestrator is part of the answer
        raise CannotCheck(f"azure-functions-durable refuses the history: {error!r}") from error
    return _document(pb.OrchestratorResponse.FromString(base64.b64decode(answer)))


def _request(trigger: Document) -> pb.OrchestratorRequest:
    events: list[Document] = trigger["history"]
    return pb.OrchestratorRequest(
        instanceId=trigger["instanceId"],
        pastEvents=[_message(each, trigger) for each in events if each["IsPlayed"]],
        newEvents=[_message(each, trigger) for each in events if not each["IsPlayed"]],
    )


def _message(event: Document, trigger: Document) -> pb.HistoryEvent:
    kind = EventType(event["EventType"])
    fields = _camel_case(event)
    if kind is EventType.EXECUTION_STARTED:
        given, parent = trigger["input"], trigger["parentInstanceId"]
        fields["input"] = None if given is None else json.dumps(given)
        if parent is not None:
            fields["parentInstance"] = {"orchestrationInstance": {"instanceId": parent}}
    elif kind in _FAILURES and not fields.get("failureDetails"):
        details = {"errorMessage": event["Reason"], "stackTrace": event["Details"]}
        fields["failureDetails"] = details
    first, *others = kind.name.lower().split("_")
    name = first + "".join(other.capitalize() for other in others)
    return ParseDict(
        {"eventId": event["EventId"], "timestamp": event["Timestamp"], name: fields},
        pb.HistoryEvent(),
        ignore_unknown_fields=True,
    )


def _document(response: pb.OrchestratorResponse) -> Document:
    answer: Document = {
        "isDone": False,
        "customStatus": parse(response.customStatus.value or None),
        NOT_REPEATED: None,
    }
    actions: list[Document] = []
    for action in response.actions:
        if not action.HasField("completeOrchestration"):
            actions.append({"id": action.id, **_action(action, response.instanceId)})
            continue
        end = action.completeOrchestration
        answer["isDone"] = True
        if end.orchestrationStatus == pb.ORCHESTRATION_STATUS_CONTINUED_AS_NEW:
            as_new = {"actionType": ActionType.CONTINUE_AS_NEW, "input": end.result.value}
            actions.append({"id": action.id, **as_new})
        elif end.orchestrationStatus == pb.ORCHESTRATION_STATUS_FAILED:
            failure = end.failureDetails
            answer["error"] = f"{failure.errorType}: {failure.errorMessage}"
            if failure.errorType.rpartition(".")[2] == NonDeterminismError.__name__:
                answer[NOT_REPEATED] = failure.errorMessage
        else:
            answer["output"] = parse(end.result.value or None)
    return answer | {"actions": [actions]}


def _action(action: pb.OrchestratorAction, instance_id: str) -> Document:
    """An action, except for the end, in the form of the orchestrator-out document."""
    kind = action.WhichOneof("orchestratorActionType")
    match kind:
        case "scheduleTask":
            call = action.scheduleTask
            fields = {"functionName": call.name, "input": _text(call)}
            return {"actionType": ActionType.CALL_ACTIVITY, **fields}
        case "createSubOrchestration":
            child = action.createSubOrchestration
            is_generated = child.instanceId == f"{instance_id}:{action.id:04x}"
            return {
                "actionType": ActionType.CALL_SUB_ORCHESTRATOR,
                "functionName": child.name,
                "input": _child_input(child),
                "version": child.version.value if child.HasField("version") else None,
                "instanceId": None if is_generated else child.instanceId,
            }
        case "createTimer":
            at = action.createTimer.fireAt.ToJsonString()
            return {"actionType": ActionType.CREATE_TIMER, "fireAt": at}
        case "sendEntityMessage":
            return _to_entity(action.sendEntityMessage)
        case _:
            raise CannotCheck(f"the replay guard does not know the action {kind}")


def _to_entity(message: pb.SendEntityMessageAction) -> Document:
    """A message to an entity. A lock and its release have no operation; nor have their events."""
    sent: Any = getattr(message, message.WhichOneof("EntityMessageType") or "")
    if message.HasField("entityLockRequested"):
        target = sent.lockSet[sent.position]
    else:
        target = sent.targetInstanceId.value
    has_operation = hasattr(sent, "operation")
    return {
        "actionType": ActionType.CALL_ENTITY,
        "instanceId": target,
        "operation": sent.operation if has_operation else None,
        "input": _child_input(sent) if has_operation else None,
    }


def _text(message: Any) -> str | None:
    return message.input.value if message.HasField("input") else None


def _child_input(message: Any) -> str | None:
    """The input, as `redaction` reads it: in histories of version 1 it is encoded twice."""
    text = _text(message)
    return None if text is None else json.dumps(child_input(text))


def _camel_case(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {key[:1].lower() + key[1:]: _camel_case(item) for key, item in fields.items()}
