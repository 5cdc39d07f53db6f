"""A recorded history: what an orchestrator was asked over one generation, and what it answered.

A file in `histories/` is the recording of one generation (an execution id: `continue_as_new` begins
another one), named `<orchestrator>-<situation>.json`:

| key | holds |
|---|---|
| `release`, `sdk` | Landfall's version, and azure-functions-durable's, when it was recorded |
| `trigger` | the orchestrator-in document of the generation's last episode, as the SDK got it |
| `episodes` | for each episode: how many actions the orchestrator had taken, its custom status |
| `answer` | the orchestrator-out document of the last episode |

An episode is what happens between two waits: it begins with OrchestratorStarted and the events that
arrived, then come the steps that its answer led to, then OrchestratorCompleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localazure.functions.durable.engine.history import EventType
from orchestrations.landing.forgetting import forgetting
from orchestrations.landing.freezing import freezing
from orchestrations.landing.landing import landing
from orchestrations.rollout.rollout import rollout
from orchestrations.training.promotion import promotion
from orchestrations.training.retraining import retraining

HISTORIES = Path(__file__).parent / "histories"
ORCHESTRATORS = {
    each.__name__: each for each in (landing, freezing, forgetting, retraining, promotion, rollout)
}
STEP_EVENTS = frozenset(
    {
        EventType.TASK_SCHEDULED,
        EventType.SUB_ORCHESTRATION_INSTANCE_CREATED,
        EventType.TIMER_CREATED,
        EventType.EVENT_SENT,
    }
)

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One file of `histories/`."""

    name: str
    release: str
    sdk: str
    trigger: Document
    episodes: list[Document]
    answer: Document

    @property
    def orchestrator(self) -> str:
        """The orchestrator's registered name."""
        return self.trigger["history"][1]["Name"]

    @property
    def actions(self) -> list[Document]:
        """Every action that the orchestrator took in this generation."""
        return self.answer["actions"][0]

    def triggers(self) -> Iterator[Document]:
        """The orchestrator-in document of each episode."""
        for past, arrived in split(self.trigger["history"]):
            yield self.trigger | {"history": [*past, *arrived]}

    def to_text(self) -> str:
        """The file: one line an event, an action, an episode."""
        trigger = {key: value for key, value in self.trigger.items() if key != "history"}
        answer = {key: value for key, value in self.answer.items() if key != "actions"}
        return (
            f'{{"release": {json.dumps(self.release)}, "sdk": {json.dumps(self.sdk)},\n'
            f'"trigger": {json.dumps(trigger)[:-1]}, "history": [\n'
            f"{_lines(self.trigger['history'])}\n]}},\n"
            f'"episodes": [\n{_lines(self.episodes)}\n],\n'
            f'"answer": {json.dumps(answer)[:-1]}, "actions": [[\n{_lines(self.actions)}\n]]}}}}\n'
        )

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Parse the output of `to_text`."""
        return cls(name=path.stem, **json.loads(path.read_text("utf-8")))


def load_all() -> list[Recording]:
    """Every recording there is, by name."""
    return [Recording.load(path) for path in sorted(HISTORIES.glob("*.json"))]


def split(history: list[Document]) -> Iterator[tuple[list[Document], list[Document]]]:
    """For each episode: the history before it, and the events that arrived.

    As the SDK gets them: the past is marked as played, what arrived is not. (`Actions` on
    OrchestratorStarted, a key of localazure's own, is written when the episode ends.)
    """
    starts = [
        index
        for index, event in enumerate(history)
        if event["EventType"] == EventType.ORCHESTRATOR_STARTED
    ]
    for start, end in zip(starts, [*starts[1:], len(history)], strict=True):
        arrived = [
            {key: value for key, value in event.items() if key != "Actions"} | {"IsPlayed": False}
            for event in history[start:end]
            if event["EventType"] not in STEP_EVENTS and not _is_end(event)
        ]
        past = [event | {"IsPlayed": True} for event in history[:start]]
        yield past, arrived


def _is_end(event: Document) -> bool:
    return event["EventType"] == EventType.ORCHESTRATOR_COMPLETED


def _lines(documents: list[Document]) -> str:
    return ",\n".join(json.dumps(document) for document in documents)
