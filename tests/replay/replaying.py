"""Replay: run an orchestrator over a recorded history, and compare its answers with the record.

The orchestrator is driven by the SDK's own handle, as the Functions worker drives it; its answers
are awaited against the history by the durable engine's own replay. Neither has a socket or a clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from azure.durable_functions import Orchestrator
from azure.durable_functions.models.actions.ActionType import ActionType

from localazure.functions.durable.engine.commands import recorded
from localazure.functions.durable.engine.decision import OUT_OF_PROC_MARK, from_answer
from localazure.functions.durable.engine.history import EventType
from localazure.functions.durable.engine.invocation import KnownFunctions
from localazure.functions.durable.engine.replay import Replay
from orchestrations import activities
from orchestrations.landing import landing
from orchestrations.retraining import retraining
from tests.replay.recording import Document, Episode, Recording

Orchestration = Callable[..., Any]

ORCHESTRATORS: dict[str, Orchestration] = {each.__name__: each for each in (landing, retraining)}


class NotAsRecorded(Exception):
    """The orchestrator's answer differs from the recorded one."""


def answer_to(orchestrator: Orchestration, trigger: Document) -> Document:
    """The orchestrator-out document to an orchestrator-in document.

    Of an orchestrator that raised, too: the SDK appends it to the text of its exception.
    """
    try:
        return json.loads(Orchestrator.create(orchestrator)(json.dumps(trigger)))
    except Exception as error:
        _, mark, document = str(error).rpartition(OUT_OF_PROC_MARK)
        if not mark:
            raise
        return json.loads(document)


def go_on(recording: Recording, orchestrator: Orchestration) -> None:
    """Have the orchestrator take up a recorded instance at its last episode.

    Raises:
        ReplayFailed: it takes other steps than the history records: an instance that is under way
            would fail there, on localazure and on Azure.
    """
    last = list(recording.replayed())[-1]
    new_steps(last, answer_to(orchestrator, last.trigger))


def replay(recording: Recording, orchestrator: Orchestration) -> None:
    """Run the orchestrator at every episode of a recording.

    Raises:
        ReplayFailed: see `go_on`.
        NotAsRecorded: no contradiction to the history, but it does more, less or with other
            arguments, or tells another status or result.
    """
    for number, episode in enumerate(recording.replayed()):
        answer = answer_to(orchestrator, episode.trigger)
        steps = new_steps(episode, answer)
        taken = answer["actions"][0]
        told = [
            ("number of actions", len(taken), episode.actions),
            ("actions", *map(_uncancelled, (taken, recording.actions[: len(taken)]))),
            ("custom status", answer.get("customStatus"), episode.custom_status),
        ]
        if episode.is_last:  # its steps are in no history, its answer is on record as a whole
            told.append(("answer", answer, recording.answer))
        else:
            told.append(("steps", steps, episode.steps))
        for what, found, wanted in told:
            if found != wanted:
                raise NotAsRecorded(
                    f"episode {number}: {what}: found {found!r}, recorded {wanted!r}"
                )


def new_steps(episode: Episode, answer: Document) -> list[Document]:
    """The history events that an answer leads to, beyond those that the history has.

    Raises:
        ReplayFailed: the answer contradicts the history.
    """
    history = [dict(event) for event in episode.trigger["history"]]
    begun = next(
        event for event in reversed(history) if event["EventType"] == EventType.ORCHESTRATOR_STARTED
    )
    decision = from_answer(json.dumps(answer))
    begun["Actions"] = len(decision.actions)  # all of them may be begun by this episode's end
    check = Replay(
        instance_id=episode.trigger["instanceId"],
        execution_id=history[1]["OrchestrationInstance"]["ExecutionId"],
        decision=decision,
        known=_known(),
        default_version=history[1]["Version"],
    )
    for event in history:
        check.feed(event)
    return [recorded(command, begun["Timestamp"]) for command in check.new.values()]


def _known() -> KnownFunctions:
    known = KnownFunctions()
    known.register("activity", tuple(activities.ACTIVITIES))
    known.register("orchestrator", tuple(ORCHESTRATORS))
    return known


def _uncancelled(actions: list[Document]) -> list[Document]:
    """Actions without the mark of a cancelled timer, which comes later than the timer."""
    return [
        action
        | ({"isCanceled": False} if action["actionType"] == ActionType.CREATE_TIMER else {})
        | (
            {"compoundActions": _uncancelled(action["compoundActions"])}
            if "compoundActions" in action
            else {}
        )
        for action in actions
    ]
