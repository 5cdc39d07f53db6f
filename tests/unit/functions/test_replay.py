from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any

import azure.durable_functions as df
import pytest
from azure.functions import OrchestrationContext
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.durable import decision, episode, history
from localazure.functions.durable.commands import ScheduleActivity
from localazure.functions.durable.instance import Execution, Status
from localazure.functions.durable.invocation import FunctionFailed, KnownFunctions
from localazure.functions.replay import ReplayCache

Answer = tuple[str, str]

KNOWN = KnownFunctions()
KNOWN.register("activity", ("step",))


def seen(context: df.DurableOrchestrationContext) -> list[Any]:
    """All that an orchestrator can see of its history."""
    return [
        str(context.current_utc_datetime),
        context.is_replaying,
        context.version,
        str(vars(context)["_input_expected_type"]),
        [
            {key: str(value) for key, value in vars(event).items() if key != "_is_processed"}
            for event in context.histories
        ],
        [event.is_processed for event in context.histories],
    ]


def orchestrator(
    context: df.DurableOrchestrationContext,
) -> Generator[Any, Any, object]:
    """Reads the shape of its work from its input: how many steps at once, and how it ends."""
    work: Any = context.get_input()
    *waves, end = work
    log = [seen(context)]
    for width in waves:
        results = yield context.task_all([context.call_activity("step", n) for n in range(width)])
        log += [results, context.new_uuid(), seen(context)]
        for event in context.histories:
            event.is_processed = True
        context.set_custom_status(log)
    if end == "raise":
        raise ValueError("told so")
    if end == "again":
        context.continue_as_new("[1]")
    return end


HANDLE: Any = df.Orchestrator.create(orchestrator)
HANDLE._df_input_type = list  # as `orchestration_trigger(input_type=list)` does


def execution(instance_id: str, work: list[Any]) -> Execution:
    return Execution(
        instance_id=instance_id,
        execution_id=f"run of {instance_id}",
        name="orchestrator",
        version="2",
        input_json=json.dumps(json.dumps(work)),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def answer(call: Callable[..., str], body: str) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK warns of its own codec
        try:
            return "returned", call(context=OrchestrationContext(body))
        except Exception as error:  # noqa: BLE001 - whatever it is, both must raise it
            return type(error).__name__, str(error)


class Run:
    """One orchestration, episode by episode, asked of two functions that must agree."""

    def __init__(self, instance_id: str, work: list[Any], call: Callable[..., str]) -> None:
        self.execution = execution(instance_id, work)
        self.call = call
        self.pieces: list[str] = []
        self.events: list[history.Event] = []
        self.waiting: list[int] = []
        self.status = Status.RUNNING
        self.episodes = 0

    def step(self, finish: int) -> None:
        """One episode, in which so many of the open activities have ended (at least one)."""
        ended, self.waiting = self.waiting[-finish:], self.waiting[:-finish]
        at = f"2026-01-01T00:00:{self.episodes:02}.000001Z"
        messages = [history.task_completed(at, event_id, "1") for event_id in ended]
        arrived = episode.begin(self.execution, at, started=bool(self.events), messages=messages)
        body = episode.trigger(self.execution, self.pieces, arrived)
        plain = answer(HANDLE, body)
        assert answer(self.call, body) == plain
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
            self.status = Status.COMPLETED  # what follows is another history
        self.pieces.append(history.encode(effects.events, played=True))
        self.events += effects.events
        self.waiting += [
            command.event_id
            for command in effects.commands
            if isinstance(command, ScheduleActivity)
        ]


WAVES = st.lists(st.integers(1, 4), max_size=4)
ENDS = st.sampled_from(["done", "raise", "again"])
WORK: st.SearchStrategy[list[Any]] = st.tuples(WAVES, ENDS).map(lambda work: [*work[0], work[1]])


@given(
    works=st.lists(WORK, min_size=1, max_size=3),
    max_characters=st.sampled_from([0, 3000, 10_000_000]),
    data=st.data(),
)
def test_every_episode_gives_what_the_sdk_gives(
    works: list[list[Any]], max_characters: int, data: st.DataObject
) -> None:
    call = ReplayCache(max_characters).wrap(HANDLE)
    runs = [Run(str(number), work, call) for number, work in enumerate(works)]
    while live := [run for run in runs if run.status is Status.RUNNING]:
        run = data.draw(st.sampled_from(live))
        run.step(data.draw(st.integers(1, max(1, len(run.waiting)))))
    for run, work in zip(runs, works, strict=True):
        assert run.status is (Status.FAILED if work[-1] == "raise" else Status.COMPLETED)
        assert run.episodes >= len(work)


def test_a_history_that_was_rewritten_is_read_anew() -> None:
    call = ReplayCache().wrap(HANDLE)
    before = Run("same", [1, 1, "done"], call)
    before.step(1)
    before.step(1)
    after = Run("same", [2, "raise"], call)
    while after.status is Status.RUNNING:
        after.step(2)
    assert after.status is Status.FAILED


def test_an_event_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from localazure.functions import replay  # noqa: PLC0415 - to be looked into

    parsed: list[str] = []
    real = replay.HistoryEvent

    def counting(**fields: Any) -> Any:
        parsed.append(fields["Timestamp"])
        return real(**fields)

    monkeypatch.setattr(replay, "HistoryEvent", counting)
    run = Run("counted", [1] * 10 + ["done"], ReplayCache().wrap(HANDLE))
    while run.status is Status.RUNNING:
        run.step(1)
    # The last episode's outcome (ExecutionCompleted, OrchestratorCompleted) is never read.
    assert len(parsed) == len(run.events) - 2


def test_what_the_sdk_did_not_make_is_called_as_it_is() -> None:
    def own(context: Any) -> str:
        return str(context)

    @functools.wraps(HANDLE)
    def decorated(context: Any) -> str:
        return str(context)

    cache = ReplayCache()
    assert cache.wrap(own) is own
    assert cache.wrap(decorated) is decorated
    assert cache.wrap(HANDLE) is not HANDLE
