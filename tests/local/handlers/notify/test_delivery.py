from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from standardwebhooks import Webhook as Verifier

from handlers.notify.delivery import (
    Delivered,
    Later,
    Skipped,
    Undeliverable,
    handle_delivery,
)
from handlers.notify.outbox import Delivery, parse_delivery, publish_notification
from handlers.platform.clients import Clients
from handlers.platform.service_bus import NOTIFICATIONS, REJECTED_RUNS
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import DELIVERY_DELAYS_SECONDS, Notifications, Webhook
from orchestrations.contracts.notifications import (
    Notification,
    NotificationKind,
    PublishNotification,
)
from tests.local.handlers.world_with_messaging import SECRET, Namespace, World
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_status

NOW = datetime.now(UTC)
MODEL_WATCH = Webhook(
    name="model-watch", url_setting="MODEL_WATCH_URL", secret_setting="MODEL_WATCH_SECRET"
)
CALLER = Webhook(
    name="caller", url_setting="CALLER_URL", secret_setting="MODEL_WATCH_SECRET", on_request=True
)
DOWN = Webhook(name="down", url_setting="DOWN_URL", secret_setting="MODEL_WATCH_SECRET")
GONE = Webhook(name="gone", url_setting="GONE_URL", secret_setting="MODEL_WATCH_SECRET")


def a_notification(
    attempt: int, kind: NotificationKind = "succeeded", *, receiver: str | None = None
) -> Notification:
    run = f"digits-{DATASET.version}-{attempt}"
    status = run_status(run, "succeeded" if kind == "succeeded" else "failed", NOW)
    return Notification(id=f"{run}:{kind}", kind=kind, at=NOW, status=status, receiver=receiver)


def deliver(world: World, delivery: Delivery) -> object:
    return handle_delivery(world.clients, delivery.model_dump_json(), now=datetime.now(UTC))


def clients_with(world: World, **settings: str) -> Clients:
    clients = Clients(Settings({**world.clients.settings.values, **settings}))
    world.lend_to(clients)
    return clients


def test_every_channel_is_told_the_same_once(world: World, namespace: Namespace) -> None:
    pipeline = PIPELINE.model_copy(update={"notify": Notifications(webhooks=[MODEL_WATCH, CALLER])})
    notification = a_notification(1, receiver="caller")
    for _ in range(2):  # the second time as after a crash between effect and checkpoint
        publish_notification(
            world.clients, PublishNotification(pipeline=pipeline, notification=notification)
        )
    taken = namespace.take(NOTIFICATIONS)
    messages = [each for each in taken if str(each.message_id).startswith(notification.id)]
    assert sorted(str(message.message_id) for message in messages) == [
        f"{notification.id}:{receiver}"
        for receiver in ("event_grid", "service_bus", "webhook/caller", "webhook/model-watch")
    ]
    for message in messages:
        assert handle_delivery(world.clients, str(message), now=datetime.now(UTC)) == Delivered()

    for path in ("/model-watch", "/caller"):
        (posted,) = world.receiver.to(path)
        document = Verifier(SECRET).verify(posted.body, posted.headers)
        assert posted.headers["webhook-id"] == notification.id
        assert document["type"] == "Landfall.Run.Succeeded"
        assert document["data"] == notification.status.to_dict()

    alert = namespace.take_alert("succeeded", notification.status.id)
    assert json.loads(str(alert)) == document
    assert (alert.message_id, alert.content_type) == (notification.id, "application/json")
    assert alert.application_properties == {
        b"kind": b"succeeded",
        b"severity": b"information",
        b"pipeline": b"digits",
        b"run": notification.status.id.encode(),
    }

    event = json.loads(world.receiver.wait_for("/events", notification.id).body)
    assert event["id"] == notification.id
    assert event["source"] == "/landfall/pipelines/digits"
    assert event["subject"] == f"runs/{notification.status.id}"
    assert event["type"] == document["type"]
    assert event["data"] == document["data"]


def test_a_failed_delivery_is_scheduled_again_once(world: World, namespace: Namespace) -> None:
    notification = a_notification(2, "failed")
    delivery = Delivery(notification=notification, channel="webhook", webhook=DOWN)
    world.receiver.answers["/down"] = (500, {})
    for _ in range(2):  # the second time as after a crash before the message was completed
        outcome = deliver(world, delivery)
        assert outcome == Later(5.0, "the receiver answered 500")
    waiting = [
        each for each in namespace.peek(NOTIFICATIONS) if each.message_id == f"{delivery.id}:2"
    ]
    assert len(waiting) == 1
    assert parse_delivery(str(waiting[0])) == delivery.following()
    due = waiting[0].scheduled_enqueue_time_utc
    assert due is not None
    assert timedelta(0) < due - NOW


def test_after_the_last_delay_comes_the_dead_letter_queue_and_an_alert(
    world: World, namespace: Namespace
) -> None:
    world.receiver.answers["/down"] = (500, {})
    delivery = Delivery(
        notification=a_notification(3),
        channel="webhook",
        webhook=DOWN,
        attempt=len(DELIVERY_DELAYS_SECONDS) + 1,
    )
    outcome = deliver(world, delivery)
    assert isinstance(outcome, Undeliverable)
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    assert letter.message_id == delivery.id
    assert letter.dead_letter_reason == "webhook/down undeliverable"
    assert letter.dead_letter_error_description == outcome.reason
    assert parse_delivery(str(letter)) == delivery
    alert = namespace.take_alert("delivery-failed", delivery.notification.status.id)
    assert json.loads(str(alert))["data"]["receiver"] == "webhook/down"
    assert (alert.application_properties or {})[b"severity"] == b"error"


def test_gone_disables_a_receiver_until_its_record_is_deleted(
    world: World, namespace: Namespace
) -> None:
    world.receiver.answers["/gone"] = (410, {})
    first, second = (
        Delivery(notification=a_notification(attempt), channel="webhook", webhook=GONE)
        for attempt in (4, 5)
    )
    assert isinstance(deliver(world, first), Skipped)
    assert isinstance(deliver(world, second), Skipped)
    assert len(world.receiver.to("/gone")) == 1
    assert namespace.take_alert("receiver-disabled", "gone")
    world.clients.records.delete_blob("webhooks/disabled/gone")
    world.receiver.answers["/gone"] = (200, {})
    assert deliver(world, second) == Delivered()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "answered 401: see app setting EventGridTopic__key"),
        (404, "no such topic: see app setting EventGridTopic__endpoint"),
        (503, "answered 503"),
    ],
)
def test_event_grid_says_what_to_mend_and_how_long_to_wait(
    world: World, status: int, reason: str
) -> None:
    clients = clients_with(world, EventGridTopic__endpoint=f"{world.receiver.url}/topic")
    path = "/topic?api-version=2018-01-01"
    world.receiver.answers[path] = (status, {"Retry-After": "3600"} if status == 503 else {})
    delivery = Delivery(notification=a_notification(8), channel="event_grid")
    with clients.event_grid:
        outcome = handle_delivery(clients, delivery.model_dump_json(), now=datetime.now(UTC))
    assert isinstance(outcome, Later)
    assert reason in outcome.reason
    assert outcome.delay_seconds == (3600.0 if status == 503 else DELIVERY_DELAYS_SECONDS[0])


@pytest.mark.parametrize("form", ["teams", "slack"])
def test_a_card_goes_to_a_secret_address_that_is_told_nowhere(
    world: World,
    namespace: Namespace,
    caplog: pytest.LogCaptureFixture,
    form: Literal["teams", "slack"],
) -> None:
    caplog.set_level("DEBUG")
    path = f"/{form}?sig=hunter2"
    clients = clients_with(world, CHANNEL_URL=f"{world.receiver.url}{path}")
    webhook = Webhook(name=form, url_setting="CHANNEL_URL", format=form)
    notification = a_notification(20 + len(form))
    delivery = Delivery(notification=notification, channel="webhook", webhook=webhook)
    last = delivery.model_copy(update={"attempt": len(DELIVERY_DELAYS_SECONDS) + 1})
    world.receiver.answers[path] = (500, {})
    outcome = handle_delivery(clients, last.model_dump_json(), now=datetime.now(UTC))
    assert isinstance(outcome, Undeliverable)
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    alert = namespace.take_alert("delivery-failed", notification.status.id)
    told = (outcome.reason, str(letter), letter.dead_letter_error_description, str(alert))
    assert [each for each in (*told, caplog.text) if "hunter2" in str(each)] == []

    world.receiver.answers[path] = (202, {})
    again = handle_delivery(clients, str(letter), now=datetime.now(UTC))
    assert again == Delivered()
    posted = world.receiver.to(path)[-1]
    assert "webhook-signature" not in posted.headers
    assert f"Run of digits: {notification.kind}" in posted.body.decode()
