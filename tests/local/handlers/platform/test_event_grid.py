from __future__ import annotations

import json
import socket
import threading
from datetime import UTC, datetime

import pytest
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.messaging import CloudEvent

from handlers.platform import event_grid
from handlers.platform.event_grid import EventGridTopic
from tests.local.handlers.world_with_messaging import http_receiver

EVENT = CloudEvent(
    id="e-1",
    source="/landfall/tests",
    type="Landfall.Test",
    time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    data={"ü": [1, None]},
)
DOCUMENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/landfall/tests",
    "type": "Landfall.Test",
    "time": "2026-01-02T03:04:05.000Z",
    "data": {"ü": [1, None]},
}


@pytest.mark.parametrize("status", [503, 413, 302, 204])
def test_there_is_one_try_redirects_are_not_followed_and_nothing_is_logged(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with http_receiver() as receiver:
        # Obeying this Retry-After would block the function for an hour.
        answer = {"Location": "/elsewhere", "Retry-After": "3600"}
        receiver.answers["/topic?api-version=2018-01-01"] = (status, answer)
        topic = EventGridTopic(f"{receiver.url}/topic", AzureKeyCredential("a2V5"))
        with topic, pytest.raises(HttpResponseError) as error:
            topic.publish(EVENT)
    assert error.value.status_code == status
    [posted] = receiver.posted
    assert posted.path == "/topic?api-version=2018-01-01"
    assert posted.headers["aeg-sas-key"] == "a2V5"
    assert posted.headers["Content-Type"].startswith("application/cloudevents-batch+json")
    assert json.loads(posted.body) == [DOCUMENT]
    # A thread of another test may log, too.
    here = threading.current_thread().name
    assert [each for each in caplog.records if each.threadName == here] == []


def test_an_answer_that_does_not_come_is_waited_for_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_grid, "TIMEOUT_SECONDS", 0.05)
    # It accepts, as a listening socket does by itself, and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/topic"
        topic = EventGridTopic(endpoint, AzureKeyCredential("a2V5"))
        with topic, pytest.raises(AzureError, match="timed out"):
            topic.publish(EVENT)
