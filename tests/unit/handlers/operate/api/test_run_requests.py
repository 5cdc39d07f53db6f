from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from handlers.notify.webhooks import parse_secrets, sign
from handlers.operate.api import run_requests
from handlers.operate.api.actions import list_actions
from handlers.operate.api.requests import Answer
from handlers.platform.bulkheads import Bulkhead
from handlers.platform.settings import Settings
from orchestrations.configuration.parameters import Parameter
from orchestrations.configuration.pipeline import Webhook
from orchestrations.contracts.landing import LandingRequest
from orchestrations.contracts.runs import CancelRequest
from orchestrations.names import request_instance
from tests.fakes.azure_ml import World, make_world
from tests.fakes.durable_client import STARTED_AT, TaskHub
from tests.unit.handlers.asking import ask, check_problem
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_status, with_rules

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
SETTINGS = Settings({"INBOUND_WEBHOOK_SECRET": SECRET})
WITH_RECEIVERS = with_rules(
    PIPELINE,
    notify={
        "webhooks": [
            Webhook(name=name, url_setting="URL", secret_setting="SECRET")
            for name in ("caller", "watch")
        ]
    },
)
RUN = f"digits-{DATASET.version}-1"


async def start(
    hub: TaskHub,
    body: bytes = b"",
    *,
    name: str = "digits",
    message_id: str = "m-1",
    settings: Settings = SETTINGS,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    signed = sign(
        parse_secrets(SECRET, setting="S"), message_id=message_id, at=datetime.now(UTC), body=body
    )
    given = signed | dict(headers or {})
    clients = make_world(settings.values).clients
    return await ask(
        run_requests.start_run, clients, hub, WITH_RECEIVERS, name=name, headers=given, body=body
    )


async def test_a_signed_request_starts_a_landing_that_is_settled() -> None:
    hub = TaskHub()
    answer = await start(hub, b'{"receiver": "caller", "reason": "new labels"}')
    instance = request_instance("digits", "m-1")
    url = f"/api/runs/{instance}"
    assert answer.status == 202
    assert answer.document == {"id": instance, "status_url": url}
    assert answer.to_response().headers["Location"] == url
    assert hub.documents[instance]["name"] == "landing"
    assert LandingRequest.from_dict(hub.documents[instance]["input"]) == LandingRequest(
        pipeline=PIPELINE.name,
        opened_by="request",
        settled=True,
        receiver="caller",
        reason="new labels",
    )


async def test_the_same_key_gets_the_same_answer_and_starts_nothing() -> None:
    hub = TaskHub()
    keyed = b'{"idempotency_key": "key"}'
    first = await start(hub, keyed, message_id="m-1")
    second = await start(hub, keyed, headers={"idempotency-key": "key"}, message_id="m-2")
    assert first == second
    assert len(hub.started) == 1
    other = await start(hub, message_id="m-2")  # the key is `webhook-id`
    assert other.document["id"] != first.document["id"]
    hub.documents[str(first.document["id"])]["runtimeStatus"] = "Completed"
    assert await start(hub, keyed) == first
    assert len(hub.started) == 2


async def test_a_recorded_request_under_another_key_starts_nothing() -> None:
    """The header is not signed: an attacker could replay a request under another key."""
    hub = TaskHub()
    answer = await start(hub, headers={"idempotency-key": "another"})
    check_problem(answer, 400, "invalid-request", "not signed")
    assert answer.document["where"] == "idempotency-key"
    keyed = b'{"idempotency_key": "key"}'
    assert (await start(hub, keyed, headers={"idempotency-key": "another"})).status == 400
    assert hub.started == []


@pytest.mark.parametrize(
    "headers",
    [
        {"webhook-signature": "v1,AAAA"},
        {"webhook-timestamp": "1614265330"},
        {"webhook-id": "another"},
    ],
)
async def test_without_a_good_signature_nothing_is_told(headers: dict[str, str]) -> None:
    hub = TaskHub()
    answer = await start(hub, name="unknown", headers=headers)
    check_problem(answer, 401, "bad-signature", "webhook-signature")
    assert hub.started == []


async def test_an_unknown_pipeline_is_404_and_the_known_ones_are_named() -> None:
    check_problem(await start(TaskHub(), name="letters"), 404, "unknown-pipeline", "digits")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"[]", "body"),
        (b"{", "body"),
        (b'{"callbackUrl": "https://a.example"}', "callbackUrl"),
        (b'{"receiver": 5}', "receiver"),
        (b'{"idempotency_key": ""}', "idempotency_key"),
    ],
)
async def test_a_malformed_body_is_400_and_names_the_place(body: bytes, where: str) -> None:
    hub = TaskHub()
    answer = await start(hub, body)
    check_problem(answer, 400, "invalid-request")
    assert answer.document["where"] == where
    assert hub.started == []


WITH_A_SEED = PIPELINE.model_copy(
    update={"parameters": {"seed": Parameter(type="integer", default=0, minimum=0)}}
)


async def test_a_person_trains_again_with_parameters_that_the_pipeline_takes(
    world: World,
) -> None:
    hub = TaskHub()

    async def train(**body: Any) -> Answer:
        document = json.dumps({"by": "ada", **body}).encode()
        return await ask(
            run_requests.train_pipeline,
            world.clients,
            hub,
            WITH_A_SEED,
            name="digits",
            body=document,
        )

    refused = await train(reason="again", parameters={"seed": -1})
    check_problem(refused, 400, "invalid-request", "less than 0")
    assert refused.document["where"] == "parameters.seed"
    check_problem(await train(), 400, "invalid-request", "reason")
    assert hub.started == []
    for _ in range(2):  # each request is one of its own
        accepted = await train(reason="again", parameters={"seed": 8})
        assert accepted.status == 202
        given = LandingRequest.from_dict(hub.documents[accepted.document["id"]]["input"])
        assert (given.parameters, given.reason, given.settled) == ({"seed": 8}, "again", True)
    assert len(hub.started) == 2
    (action, *_) = (await ask(list_actions, world.clients)).document["actions"]
    assert (action["action"], action["by"]) == ("train", "ada")
    assert action["outcome"].endswith("with seed=8")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"parameters": {"seed": 1}}', "no such parameter"),
        (b'{"receiver": "caler"}', "no such receiver; its webhooks are: caller, watch"),
        (b'{"callback_url": "https://a.example"}', "callback_url was removed: .* as receiver"),
    ],
)
async def test_only_a_webhook_of_the_pipeline_is_a_receiver(body: bytes, words: str) -> None:
    hub = TaskHub()
    answer = await start(hub, body)
    check_problem(answer, 400, "invalid-request")
    assert re.search(words, str(answer.document["detail"]))
    assert hub.started == []


async def test_limits_and_a_missing_secret_are_told() -> None:
    hub = TaskHub()
    check_problem(await start(hub, b" " * 20_001), 413, "invalid-request")
    long = json.dumps({"idempotency_key": "k" * 256}).encode()
    check_problem(await start(hub, long), 400, "invalid-request", "255")
    unset = await start(hub, settings=Settings({}))
    check_problem(unset, 503, "not-configured", "INBOUND_WEBHOOK_SECRET")
    assert hub.started == []


async def test_cancel_keeps_the_request_and_wakes_the_run_up(world: World) -> None:
    hub = TaskHub()
    hub.add("digits-aa-2", "retraining")
    answer = await ask(
        run_requests.cancel_run,
        world.clients,
        hub,
        run="digits-aa-2",
        headers={"x-ms-client-principal-name": "ada@example.com"},
        body=b'{"by": "bob", "reason": "wrong data"}',
    )
    assert answer.status == 202
    assert answer.document["id"] == "digits-aa-2"
    kept = json.loads(world.records.blobs["runs/digits-aa-2/cancel"])
    assert CancelRequest.from_dict(kept) == CancelRequest(by="ada@example.com", reason="wrong data")
    assert hub.raised == [("digits-aa-2", "wake_up")]
    (action,) = [json.loads(text) for name, text in world.records.blobs.items() if "act" in name]
    assert (action["action"], action["on"]) == ("cancel", "run digits-aa-2")
    assert (action["by"], action["reason"]) == ("ada@example.com", "wrong data")


async def test_a_cancellation_does_not_wait_for_its_own_record_of_actions(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    few = Bulkhead("storage", threads=2, limit_seconds=30)
    monkeypatch.setattr(run_requests, "CANCELLATIONS", few)
    monkeypatch.setattr(run_requests, "PART_SECONDS", 0.05)
    returns = threading.Event()

    def hang(*_: object, **__: object) -> None:
        returns.wait(30)

    monkeypatch.setattr(run_requests, "keep_action", hang)
    hub = TaskHub()
    hub.add("digits-aa-2", "retraining")
    with caplog.at_level(logging.WARNING):
        answer = await ask(run_requests.cancel_run, world.clients, hub, run="digits-aa-2")
    returns.set()
    assert answer.status == 202
    assert hub.raised == [("digits-aa-2", "wake_up")]
    assert caplog.messages == ["action cancel of run digits-aa-2 was not recorded: Unavailable"]


async def test_a_task_hub_that_hangs_is_told(world: World) -> None:
    class Hung(TaskHub):
        async def get_status(self, *_: object, **__: object) -> Any:
            await asyncio.Event().wait()

    brief = Bulkhead("storage", threads=1, limit_seconds=0.05)
    answer = await ask(
        run_requests.cancel_run, world.clients, Hung(), run="digits-aa-2", service=brief
    )
    check_problem(answer, 503, "unavailable", "no answer within 0.05 s")


async def test_what_has_ended_or_is_no_run_cannot_be_cancelled(world: World) -> None:
    hub = TaskHub()
    hub.add("landing-digits", "landing")
    hub.add("digits-aa-2", "retraining")
    succeeded = run_status("letters-bb-1", "succeeded", STARTED_AT).to_dict()
    hub.add("letters-bb-1", "retraining", "Completed", custom_status=succeeded)
    ended = await ask(run_requests.cancel_run, world.clients, hub, run="letters-bb-1")
    check_problem(ended, 409, "run-has-ended", "succeeded")
    for run in ("landing-digits", "digits-zz-1"):
        unknown = await ask(run_requests.cancel_run, world.clients, hub, run=run)
        check_problem(unknown, 404, "unknown-run")
    malformed = await ask(
        run_requests.cancel_run, world.clients, hub, run="digits-aa-2", body=b'{"why": 1}'
    )
    check_problem(malformed, 400, "invalid-request", "reason")
    assert world.records.blobs == {}
