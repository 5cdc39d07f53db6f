from __future__ import annotations

import json
import logging

import pytest
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import AzureError, HttpResponseError

from handlers.event_grid_topic import EventGridTopic
from tests.local.handlers.messaging.conftest import World, http_receiver

EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/landfall/tests",
    "type": "Landfall.Test",
    "data": {"ü": 1},
}


def test_an_event_goes_through_the_topic_as_it_is_and_leaves_no_warnings(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        world.clients.event_grid.publish(EVENT)
    delivered = json.loads(world.receiver.wait_for("/events", "e-1").body)
    assert {name: delivered[name] for name in EVENT} == EVENT
    assert caplog.records == []


def test_a_wrong_key_is_refused(world: World) -> None:
    endpoint = world.clients.settings.required("EventGridTopic__endpoint")
    topic = EventGridTopic(endpoint, AzureKeyCredential("d3Jvbmc="))
    with topic, pytest.raises(HttpResponseError) as refused:
        topic.publish(EVENT)
    assert refused.value.status_code == 401
    assert "d3Jvbmc=" not in str(refused.value)


@pytest.mark.parametrize(("status", "requests"), [(503, 2), (413, 1), (302, 1), (204, 1)])
def test_patience_is_bounded_and_redirects_are_not_followed(status: int, requests: int) -> None:
    with http_receiver() as receiver:
        receiver.answers["/topic?api-version=2018-01-01"] = (status, {"Location": "/elsewhere"})
        topic = EventGridTopic(f"{receiver.url}/topic", AzureKeyCredential("a2V5"))
        with topic, pytest.raises(HttpResponseError) as error:
            topic.publish(EVENT)
    assert error.value.status_code == status
    assert [each.path for each in receiver.posted] == ["/topic?api-version=2018-01-01"] * requests
    for posted in receiver.posted:
        assert posted.headers["aeg-sas-key"] == "a2V5"
        assert posted.headers["Content-Type"].startswith("application/cloudevents-batch+json")
        assert json.loads(posted.body) == [EVENT]


def test_a_topic_out_of_reach_is_an_error_that_says_so() -> None:
    with http_receiver() as receiver:
        closed = f"{receiver.url}/topic"
    topic = EventGridTopic(closed, AzureKeyCredential("a2V5"))
    with topic, pytest.raises(AzureError):
        topic.publish(EVENT)
