"""The tape of a recording session: what every orchestrator was asked and answered, as it comes in.

Written by `recorded_app/function_app.py`, one JSON document a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azure.durable_functions.models.actions.ActionType import ActionType

from tests.replay.recording import Document, Recording, split


@dataclass
class Generation:
    """One execution of an instance, as far as it has come."""

    orchestrator: str
    pipeline: str
    instance: str
    triggers: list[Document] = field(default_factory=list[Document])
    answers: list[Document] = field(default_factory=list[Document])

    @property
    def is_done(self) -> bool:
        """Whether it has returned or continued as new."""
        return self.answers[-1]["isDone"]

    @property
    def is_continued(self) -> bool:
        """Whether it has continued as new."""
        return self.is_done and self.answers[-1].get("output") is None

    @property
    def ended_as(self) -> str | None:
        """The state in which it ended, if it is a run's last generation."""
        return None if not self.is_done or self.is_continued else self.status.get("state")

    @property
    def phase(self) -> str | None:
        """A landing's phase or a run's state, while it waits for `wake_up`; None otherwise."""
        return (self.status.get("phase") or self.status["state"]) if self.waits else None

    @property
    def status(self) -> Document:
        """The custom status of the instance."""
        return self.answers[-1].get("customStatus") or {}

    @property
    def waits(self) -> bool:
        """Whether it waits for `wake_up` or a timer (the only compound task that there is)."""
        actions = self.answers[-1]["actions"][0]
        return not self.is_done and actions[-1]["actionType"] == ActionType.WHEN_ANY

    def add(self, trigger: Document, answer: Document) -> None:
        """An episode; one that was begun again (after a crash) counts as it was the last time."""
        number = sum(1 for _ in split(trigger["history"]))
        del self.triggers[number - 1 :], self.answers[number - 1 :]
        self.triggers.append(trigger)
        self.answers.append(answer)

    def to_recording(self, name: str, release: str, sdk: str) -> Recording:
        """All of it; the generation is done.

        Raises:
            ValueError: an episode cut out of the last history is not what the SDK was given.
        """
        recording = Recording(
            name=name,
            release=release,
            sdk=sdk,
            trigger=self.triggers[-1],
            episodes=[
                {"actions": len(answer["actions"][0]), "customStatus": answer.get("customStatus")}
                for answer in self.answers
            ],
            answer=self.answers[-1],
        )
        for number, trigger in enumerate(recording.triggers()):
            if trigger != self.triggers[number]:
                raise ValueError(f"{name}: episode {number} cannot be cut out of the history")
        return recording


class Tape:
    """The generations on a tape, in order of their beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._generations: dict[str, Generation] = {}

    def generations(self, orchestrator: str, pipeline: str) -> list[Generation]:
        """The generations of one orchestrator for one pipeline that were recorded so far."""
        known = self.all_generations(pipeline)
        return [each for each in known if each.orchestrator == orchestrator]

    def all_generations(self, pipeline: str) -> list[Generation]:
        """The generations of all orchestrators for one pipeline that were recorded so far."""
        self.read_on()
        return [each for each in self._generations.values() if each.pipeline == pipeline]

    def read_on(self) -> None:
        """Take in what has been written since."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            call = json.loads(line)
            self._add(json.loads(call["trigger"]), json.loads(call["answer"]))

    def _add(self, trigger: Document, answer: Document) -> None:
        begun = trigger["history"][1]
        execution = begun["OrchestrationInstance"]["ExecutionId"]
        if execution not in self._generations:
            self._generations[execution] = Generation(
                orchestrator=begun["Name"],
                pipeline=_pipeline(trigger["input"]),
                instance=trigger["instanceId"],
            )
        self._generations[execution].add(trigger, answer)


def _pipeline(given: Any) -> str:
    while isinstance(given, str):  # sub-orchestrations' inputs are JSON inside of JSON
        given = json.loads(given)
    if isinstance(given.get("request"), str):  # a request to forget is of no pipeline
        return "forgotten"
    for holder in ("request", "commit", "status"):  # of `retraining`, `freezing`, `promotion`
        given = given.get(holder, given)
    pipeline = given["pipeline"]
    return pipeline if isinstance(pipeline, str) else pipeline["name"]


def without_machine(text: str, places: Mapping[str, str]) -> str:
    """Return the text of a recording with this machine's paths replaced.

    Args:
        text: JSON.
        places: path on this machine -> its replacement; the longest first.
    """
    for path, name in places.items():
        text = text.replace(path, name)
    return re.sub(r"\b(127\.0\.0\.1|localhost):\d+", r"\1:1", text)
