"""The document of `make demo JSON=1`: programs read it, so its keys are a promise."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demo.receivers import Mailbox, Received
from demo.report import Report, StoryResult, failure_line, show, summarise_error
from demo.stories import STORIES

RUN: dict[str, Any] = {
    "id": "run-digits-1",
    "pipeline": "digits",
    "attempt": 1,
    "state": "succeeded",
    "reason": "the gate let it pass",
    "dataset_version": "0123456789abcdef",
    "job": "run-digits-1",
    "model": {"name": "digits", "version": "1760000000"},
    "metrics": {"accuracy": 0.9712},
    "error": None,
}
WAITING = {**RUN, "id": "run-digits-2", "state": "queued", "job": None, "model": None}
MODEL = {
    "name": "digits",
    "version": "1760000000",
    "dataset_version": "0123456789abcdef",
    "job": "run-digits-1",
    "metrics": {"accuracy": 0.9712},
}
TOLD = Received(kind="succeeded", channel="webhook", id="run-digits-1:succeeded", run=RUN["id"])


@pytest.fixture
def report() -> Report:
    return Report(
        stories=[
            StoryResult(name="it lands", state="late", seconds=12.3456, facts={"files": 600}),
            StoryResult(name="it fails", state="failed", seconds=0.04, facts={"error": "no"}),
        ],
        runs=[RUN, {**WAITING, "metrics": None}],
        models=[MODEL],
        notifications=[TOLD],
        total_seconds=99.99,
    )


def test_the_document_has_the_promised_keys_and_no_others(report: Report) -> None:
    document = json.loads(json.dumps(report.to_dict()))
    assert document == {
        "stories": [
            {
                "name": "it lands",
                "state": "late",
                "ok": True,
                "seconds": 12.3,
                "facts": {"files": 600},
            },
            {
                "name": "it fails",
                "state": "failed",
                "ok": False,
                "seconds": 0.0,
                "facts": {"error": "no"},
            },
        ],
        "runs": [
            {
                "id": "run-digits-1",
                "pipeline": "digits",
                "attempt": 1,
                "state": "succeeded",
                "dataset_version": "0123456789abcdef",
                "job": "run-digits-1",
            },
            {
                "id": "run-digits-2",
                "pipeline": "digits",
                "attempt": 1,
                "state": "queued",
                "dataset_version": "0123456789abcdef",
                "job": None,
            },
        ],
        "models": [MODEL],
        "notifications": [
            {"kind": "succeeded", "channel": "webhook", "id": "run-digits-1:succeeded"}
        ],
        "total_seconds": 100.0,
    }


def test_one_story_that_failed_fails_the_demo(report: Report) -> None:
    assert not report.ok
    assert dataclasses.replace(report, stories=report.stories[:1]).ok


def test_people_read_the_same_facts(report: Report) -> None:
    output = io.StringIO()
    show(report, Console(file=output, width=120))
    text = output.getvalue()
    for words in ("✗", "✓ late", "it lands", "files: 600", "error: no", "run-digits-2", "0.9712"):
        assert words in text
    assert "1 on webhook" in text


def test_six_stories_are_told() -> None:
    assert len(STORIES) == 6
    assert all(story.play.__doc__ and story.outcome for story in STORIES.values())


def test_what_comes_twice_under_one_id_is_one_notification() -> None:
    mailbox = Mailbox()
    for received in (TOLD, TOLD, dataclasses.replace(TOLD, channel="event_grid")):
        mailbox.add(received)
    assert [each.channel for each in mailbox.notifications] == ["webhook", "event_grid"]
    assert mailbox.on("webhook", "succeeded", RUN["id"]) == TOLD
    assert mailbox.on("webhook", "failed", RUN["id"]) is None


def test_a_failure_is_one_line_of_json() -> None:
    group = ExceptionGroup("some", [ValueError("{'a':\n 1}" * 100), KeyError("b")])
    facts = {"error": summarise_error(group)}
    failed = StoryResult(name="it fails", state="failed", seconds=1.26, facts=facts)
    line = failure_line(failed, {"run-digits-1": "succeeded"}, Path("build/demo/logs"))
    assert "\n" not in line
    error = json.loads(line).pop("error")
    assert error.startswith("ValueError: {'a': 1}{'a': 1}")
    assert len(error) == 300
    assert json.loads(line) == {
        "story": "it fails",
        "state": "failed",
        "seconds": 1.3,
        "error": error,
        "runs": {"run-digits-1": "succeeded"},
        "logs": "build/demo/logs",
    }
