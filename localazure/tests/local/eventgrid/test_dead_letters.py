"""Dead letters, in the real storage part."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.core.credentials import AzureKeyCredential
from azure.eventgrid import EventGridEvent
from azure.eventgrid.aio import EventGridPublisherClient
from azure.storage.blob.aio import ContainerClient

from harness.waiting import eventually
from localazure.eventgrid import service as eventgrid
from localazure.runtime.environment import Environment
from localazure.storage import service as storage

DEAD_LETTERS = {
    "endpointType": "StorageBlob",
    "properties": {"blobContainerName": "dead-letter-events"},
}


def container(environment: Environment) -> ContainerClient:
    return ContainerClient.from_connection_string(
        environment.storage_connection_string(), "dead-letter-events"
    )


async def read_letters(letters: ContainerClient, count: int) -> dict[str, Any]:
    """Wait for `count` dead letters and return their contents by name."""

    async def names() -> list[str] | None:
        listed = [name async for name in letters.list_blob_names()]
        return listed if len(listed) >= count else None

    found: dict[str, Any] = {}
    for name in await eventually(names):
        downloader = await letters.download_blob(name)
        found[name] = json.loads(await downloader.readall())
    return found


# Answers of a webhook, the number of attempts, the reason and the last outcome.
CASES = [
    ([500, 500], 2, "MaxDeliveryAttemptsExceeded", "GenericError"),
    ([400], 1, "UndeliverableDueToClientError", "BadRequest"),
    ([500, 401], 2, "UndeliverableDueToClientError", "Unauthorized"),
]


async def test_event_is_dead_lettered_with_its_history(
    environment: Environment,
    configure: Any,
    webhook: Any,
    new_receiver: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Storage starts after the last failed attempt of every event."""
    monkeypatch.setattr("localazure.eventgrid.delivery.DEAD_LETTER_RETRY_SECONDS", 0.1)
    environment.storage_config.write_text('{"containers": ["dead-letter-events"]}')
    receivers = [new_receiver() for _ in CASES]
    policy = {"deadLetterDestination": DEAD_LETTERS, "retryPolicy": {"maxDeliveryAttempts": 2}}
    configure(
        *(
            webhook(f"hook{number}", "azure-ml", receiver.url, **policy)
            for number, receiver in enumerate(receivers)
        ),
        retryScheduleSeconds=[0.01],
    )
    key = AzureKeyCredential(environment.event_grid_keys("azure-ml")[0])
    sent = EventGridEvent("/s", "T", {"n": 1}, "1")
    async with (
        contextlib.AsyncExitStack() as stack,
        eventgrid.serve(environment),
        EventGridPublisherClient(environment.topic_endpoint("azure-ml"), key) as client,
    ):
        for receiver, (answers, *_) in zip(receivers, CASES, strict=True):
            receiver.answers = list(answers)
            await stack.enter_async_context(receiver.listening())
        await client.send(sent)
        requests = [attempts for _, attempts, *_ in CASES]
        await eventually(lambda: [len(each.requests) for each in receivers] == requests)
        async with storage.serve(environment), container(environment) as letters:
            found = await read_letters(letters, len(CASES))
    for number, (name, (letter,)) in enumerate(sorted(found.items())):
        _, attempts, reason, outcome = CASES[number]
        counts = [headers["aeg-delivery-count"] for headers, _ in receivers[number].requests]
        assert counts == ["0", "1"][:attempts]
        assert (letter["id"], letter["data"]) == (str(sent.id), {"n": 1})
        assert letter["deadLetterReason"] == reason
        assert letter["deliveryAttempts"] == attempts
        assert letter["lastDeliveryOutcome"] == outcome
        assert letter["publishTime"] <= letter["lastDeliveryAttemptTime"]
        at = datetime.fromisoformat(letter["lastDeliveryAttemptTime"]).astimezone(UTC)
        assert name.startswith(f"HOOK{number}/{at.year}/{at.month}/{at.day}/{at.hour}/")
