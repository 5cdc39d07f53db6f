from __future__ import annotations

import functools
import hashlib
import json
import warnings
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import azure.durable_functions as df
import pytest
from azure.durable_functions.models.history import HistoryEvent
from azure.functions import OrchestrationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from localazure.functions.durable.engine import decision, episode, history
from localazure.functions.durable.engine.instance import Execution, Parent, Status
from localazure.functions.durable.engine.invocation import FunctionFailed, KnownFunctions
from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.worker import replay_shortcut
from localazure.functions.worker.orchestrators import TriggerContext

Answer = tuple[str, str]

KNOWN = KnownFunctions(activity=["step"])


def seen(context: df.DurableOrchestrationContext) -> list[Any]:
    """Everything that an orchestrator can read about its history."""
    return [
        str(context.current_utc_datetime),
        context.is_replaying,
        getattr(context, "version", None),  # since 1.4
        str(vars(context)["_input_expected_type"]),
        [
            {
                key: str(value)
                for key, value in sorted(vars(event).items())
                if key != "_is_processed"
            }
            for event in context.histories
        ],
        [event.is_processed for event in context.histories],
    ]


def orchestrator(
    context: df.DurableOrchestrationContext,
) -> Generator[Any, Any, object]:
    """Runs the waves of steps in its input, then ends as its input says."""
    work: Any = context.get_input()
    *waves, end = work
    log = [seen(context)]
    for width in waves:
        results = yield context.task_all([context.call_activity("step", n) for n in range(width)])
        log += [results, context.new_uuid(), seen(context)]
        for event in context.histories:
            event.is_processed = True
        # The whole log would exceed the limit of a custom status.
        context.set_custom_status(hashlib.sha256(json.dumps(log).encode()).hexdigest())
    if end == "raise":
        raise ValueError("told so")
    if end == "again":
        context.continue_as_new("[1]")
    return end


HANDLE: Any = df.Orchestrator.create(orchestrator)
HANDLE._df_input_type = list  # set by `orchestration_trigger(input_type=list)`
CALL = replay_shortcut.wrap(HANDLE)


def execution(instance_id: str, work: list[Any]) -> Execution:
    return Execution(
        instance_id=instance_id,
        execution_id=f"run of {instance_id}",
        name="orchestrator",
        version="2",
        input_json=json.dumps(json.dumps(work)),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def answer(call: Callable[..., str], context: OrchestrationContext) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK warns about its own codec
        try:
            return "returned", call(context=context)
        except Exception as error:  # noqa: BLE001 - whatever it is, both must raise it
            return type(error).__name__, str(error)


class Run:
    """An orchestration whose episodes are run by two functions that must agree."""

    def __init__(self, instance_id: str, work: list[Any]) -> None:
        self.execution = execution(instance_id, work)
        self.memo: dict[str, Any] = {}
        self.events: list[history.Event] = []
        self.waiting: list[int] = []
        self.status = Status.RUNNING
        self.episodes = 0

    def step(self, finish: int) -> None:
        """Run an episode in which `finish` (at least one) of the open activities have ended."""
        ended, self.waiting = self.waiting[-finish:], self.waiting[:-finish]
        at = f"2026-01-01T00:00:{self.episodes:02}.000001Z"
        messages = [history.task_completed(at, event_id, "1") for event_id in ended]
        arrived = episode.begin(self.execution, at, started=bool(self.events), messages=messages)
        trigger = OrchestratorTrigger(
            execution=self.execution, past=self.events, arrived=arrived, memo=self.memo
        )
        plain = answer(HANDLE, OrchestrationContext(trigger.body))
        assert answer(CALL, TriggerContext(trigger)) == plain
        elsewhere = OrchestratorTrigger.parse(trigger.body)  # as one of several hosts gets it
        assert answer(CALL, TriggerContext(elsewhere)) == plain
        self.episodes += 1
        kind, text = plain
        effects = episode.conclude(
            self.execution,
            self.events,
            arrived,
            decision.from_answer(text)
            if kind == "returned"
            else decision.from_failure(FunctionFailed(kind, text, "")),
            known=KNOWN,
            default_version=None,
        )
        self.status = effects.status
        if effects.next_input is not None:
            self.status = Status.COMPLETED  # continue_as_new starts another history
        self.events += effects.events
        self.waiting += [
            step["EventId"]
            for step in effects.steps
            if step["EventType"] == history.EventType.TASK_SCHEDULED
        ]


WAVES = st.lists(st.integers(1, 4), max_size=4)
ENDS = st.sampled_from(["done", "raise", "again"])
WORK: st.SearchStrategy[list[Any]] = st.tuples(WAVES, ENDS).map(lambda work: [*work[0], work[1]])


# Each example compares about ten episodes; the random tests of local/durable use this, too.
@settings(max_examples=40, deadline=None)  # `make conformance` runs it without the profile
@given(works=st.lists(WORK, min_size=1, max_size=3), data=st.data())
def test_every_episode_gives_what_the_sdk_gives(
    works: list[list[Any]], data: st.DataObject
) -> None:
    runs = [Run(str(number), work) for number, work in enumerate(works)]
    while live := [run for run in runs if run.status is Status.RUNNING]:
        run = data.draw(st.sampled_from(live))
        if data.draw(st.integers(0, 4)) == 0:  # the history was evicted and read again
            run.memo = {}
            run.events = history.decode(history.encode(run.events))
        run.step(data.draw(st.integers(1, max(1, len(run.waiting)))))
    for run, work in zip(runs, works, strict=True):
        assert run.status is (Status.FAILED if work[-1] == "raise" else Status.COMPLETED)
        assert run.episodes >= len(work)


AT = "2026-01-01T00:00:01.000002Z"
EVENTS = [
    history.execution_started(
        AT,
        name="o",
        version="1",
        input_json="1",
        instance_id="i",
        execution_id="e",
        parent_instance_id="p",
    ),
    history.execution_completed(AT, status="Completed", result="1"),
    history.execution_terminated(AT, "why"),
    history.execution_suspended(AT, "why"),
    history.execution_resumed(AT, "why"),
    history.task_scheduled(AT, 1, name="a", input_json="1"),
    history.task_completed(AT, 1, None),
    history.task_failed(AT, 1, reason="r", details="d"),
    history.sub_orchestration_created(
        AT, 1, name="o", version=None, instance_id="c", input_json=None
    ),
    history.sub_orchestration_completed(AT, 1, "1"),
    history.sub_orchestration_failed(AT, 1, reason="r", details="d"),
    history.timer_created(AT, 1, AT),
    history.timer_fired(AT, 1, AT),
    history.event_sent(AT, 1, target="@e@k", input_json="{}"),
    history.event_raised(AT, "go", None),
    history.generic_event(AT, "x"),
    {**history.orchestrator_started(AT), "Actions": 3},
    history.orchestrator_completed(AT),
    # Timestamps in formats that the engine does not write:
    history.orchestrator_completed("2026-01-01T00:00:01Z"),
    history.orchestrator_completed("2026-01-01T00:00:01.000000+01:00"),
]


def attributes(thing: object) -> dict[str, Any]:
    """All attributes, including the types of values and the names of time zones."""
    shown: dict[str, Any] = {}
    for name, value in vars(thing).items():
        is_part = type(value).__module__.startswith("azure.") and hasattr(value, "__dict__")
        shown[name] = (
            [attributes(one) for one in value]
            if name == "_histories"
            else (attributes(value) if is_part else (type(value), repr(value)))
        )
    return shown


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: str(event["EventType"]))
@pytest.mark.parametrize("is_played", [True, False])
def test_an_event_is_what_the_sdk_makes_of_it(event: history.Event, is_played: bool) -> None:  # noqa: FBT001 - a parameter
    make = replay_shortcut.make_event
    assert attributes(make(event, is_played=is_played)) == attributes(
        HistoryEvent(IsPlayed=is_played, **event)
    )


@pytest.mark.parametrize("input_json", [None, "null", "1", '{"a": 1}', '"{\\"a\\": 1}"', "[1]"])
@pytest.mark.parametrize("parent", [None, Parent(instance_id="p", execution_id="e", event_id=1)])
def test_a_context_is_what_the_sdk_makes_of_it(
    input_json: str | None, parent: Parent | None
) -> None:
    run = replace(execution("i", []), input_json=input_json, parent=parent)
    trigger = OrchestratorTrigger(
        execution=run, past=[], arrived=episode.begin(run, AT, started=False, messages=[])
    )
    contexts: list[df.DurableOrchestrationContext] = []

    def keep(context: df.DurableOrchestrationContext) -> None:
        contexts.append(context)

    handle = df.Orchestrator.create(keep)  # pyright: ignore[reportArgumentType] - no generator
    handle(OrchestrationContext(trigger.body))
    replay_shortcut.wrap(handle)(context=TriggerContext(trigger))
    theirs, ours = contexts
    assert attributes(ours) == attributes(theirs)
    assert not [
        name
        for name, value in vars(ours).items()
        if isinstance(value, (list, dict)) and value is vars(theirs)[name]
    ]


def test_functions_not_made_by_the_sdk_are_called_unchanged() -> None:
    def own(context: Any) -> str:
        return str(context)

    @functools.wraps(HANDLE)
    def decorated(context: Any) -> str:
        return str(context)

    assert replay_shortcut.wrap(own) is own
    assert replay_shortcut.wrap(decorated) is decorated
    assert replay_shortcut.wrap(HANDLE) is not HANDLE
