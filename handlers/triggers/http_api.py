"""Runs are started and ended over HTTP: a signed request, a cancellation, a redrive.

What is only read is in `handlers.api`, and `handlers.api.openapi` describes all of it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from pydantic import BaseModel, ConfigDict, Field

from handlers.api.actions import caller, keep_action
from handlers.api.bodies import check_length, parse_body
from handlers.azure_ml.jobs import request_cancel
from handlers.configuration.clients import Clients
from handlers.configuration.settings import Settings
from handlers.durable.instances import exists, is_live, wake_up
from handlers.durable.starting import start_once
from handlers.durable.status_documents import run_status
from handlers.messaging.redrive import MAXIMUM, RedriveOrder
from handlers.messaging.redrive import redrive as redrive_letters
from handlers.messaging.redrive_changes import Changes, RedriveRefused
from handlers.notifications.receiver_addresses import ReceiverRefused, check_literal, parse_receiver
from handlers.notifications.webhook_signature import ID_HEADER, BadSignature, parse_secrets, verify
from handlers.telemetry.current_span import below
from handlers.triggers.problem_details import Answer, Problem
from orchestrations.contracts.jobs import CancelRequest
from orchestrations.contracts.landing import BatchTrace, LandingRequest
from orchestrations.contracts.runs import START_REASON_LIMIT_CHARACTERS
from orchestrations.errors import InvalidSetting
from orchestrations.landing import landing
from orchestrations.names import request_instance
from orchestrations.pipeline import Pipeline
from orchestrations.retraining import retraining
from orchestrations.trace_context import HEADER, TraceContext

logger = logging.getLogger(__name__)

INBOUND_SECRET_SETTING = "INBOUND_WEBHOOK_SECRET"  # noqa: S105 - the name of a setting
IDEMPOTENCY_HEADER = "idempotency-key"
IDEMPOTENCY_KEY_LIMIT_CHARACTERS = 255
# Holds the paths of so many files as may be left out.
REDRIVE_LIMIT_BYTES = 1_000_000
# Instance ids go into the durable client's URLs as they are.
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")


class Body(BaseModel):
    """Base of the bodies: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StartRun(Body):
    """Body of POST /api/pipelines/{name}/runs; all of it may be left out."""

    callback_url: str | None = None
    reason: str | None = Field(default=None, min_length=1, max_length=START_REASON_LIMIT_CHARACTERS)
    idempotency_key: str | None = Field(
        default=None, min_length=1, max_length=IDEMPOTENCY_KEY_LIMIT_CHARACTERS
    )


class CancelRun(Body):
    """Body of POST /api/runs/{id}/cancel; all of it may be left out."""

    by: str = Field(default="a caller of the HTTP API", max_length=200)
    reason: str = Field(default="no reason was given", max_length=1_000)


class Redrive(Body):
    """Body of POST /api/redrive; all of it may be left out."""

    run: str | None = None
    maximum: int = Field(default=10, ge=1, le=MAXIMUM)
    changes: Changes = Changes()
    by: str = Field(default="a caller of the HTTP API", min_length=1, max_length=100)
    reason: str = Field(default="no reason was given", min_length=1, max_length=300)


async def start_run(
    settings: Settings,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    *,
    name: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Freeze what is in a pipeline's zone now and train on it.

    The request is signed as a webhook (`webhook-id`, `webhook-timestamp`, `webhook-signature`) with
    the secret in `INBOUND_WEBHOOK_SECRET`. Its key is the body's `idempotency_key`, or else
    `webhook-id`, which are both signed: the same key again starts nothing and gets the same answer.

    Args:
        settings: for the secret.
        pipelines: by name.
        starter: the durable client.
        name: of the pipeline.
        headers: of the request.
        body: as it came in: the signature is over these very bytes.
    """
    try:
        key, request = parse_start_run(settings, pipelines, name, headers, body)
    except Problem as problem:
        return problem.to_answer()
    instance = request_instance(name, key)
    with below(request.trace and request.trace.parent):
        started = await start_once(starter, landing.__name__, instance, request.to_dict())
    logger.info("%s: %s", instance, "started" if started else "was started before")
    return _accepted(instance)


def parse_start_run(
    settings: Settings,
    pipelines: Mapping[str, Pipeline],
    name: str,
    headers: Mapping[str, str],
    body: bytes,
) -> tuple[str, LandingRequest]:
    """The idempotency key, and what is asked for.

    Raises:
        Problem: 401 without a good signature (before anything else is checked), 404 for an unknown
            pipeline, 400 and 413 for a request that is malformed, 503 while no secret is set.
    """
    fields = {name.lower(): value for name, value in headers.items()}
    check_length(body)
    try:
        value = settings.required(INBOUND_SECRET_SETTING)
        message_id = verify(parse_secrets(value, setting=INBOUND_SECRET_SETTING), fields, body)
    except InvalidSetting as error:
        raise Problem(503, "not-configured", str(error)) from None
    except BadSignature as error:
        raise Problem(401, "bad-signature", str(error)) from None
    if name not in pipelines:
        known = ", ".join(sorted(pipelines))
        raise Problem(404, "unknown-pipeline", f"there is no pipeline {name!r}; there are: {known}")
    asked = parse_body(StartRun, body)
    key = asked.idempotency_key or message_id
    if len(key) > IDEMPOTENCY_KEY_LIMIT_CHARACTERS:
        raise Problem(
            400,
            "invalid-request",
            f"it has at most {IDEMPOTENCY_KEY_LIMIT_CHARACTERS} characters",
            where=ID_HEADER,
        )
    if fields.get(IDEMPOTENCY_HEADER, key) != key:
        # The header is not signed: a recorded request could be sent again under any key.
        raise Problem(
            400,
            "invalid-request",
            "the header is not signed: put the key into the body, as idempotency_key",
            where=IDEMPOTENCY_HEADER,
        )
    if asked.callback_url is not None:
        _check_callback(asked.callback_url, settings)
    return key, LandingRequest(
        pipeline=pipelines[name],
        opened_by="request",
        settled=True,
        callback_url=asked.callback_url,
        reason=asked.reason,
        trace=_trace(settings, fields.get(HEADER)),
    )


def _trace(settings: Settings, caller: str | None) -> BatchTrace | None:
    """In the caller's trace, if there is one."""
    if TraceContext.parse(caller) is not None:
        return BatchTrace(parent=caller)
    return BatchTrace() if settings.sends_telemetry else None


async def cancel_run(
    clients: Clients,
    starter: DurableOrchestrationClient,
    *,
    run: str,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> Answer:
    """Ask a run to end its job.

    The request is put on record first: a run that misses the event, or has not submitted its job
    yet, finds the record at its next poll.
    """
    try:
        asked = parse_body(CancelRun, body)
        status = await _find(starter, run)
        if not _is_run(status):
            raise _not_found(run)
        if not is_live(status):
            raise Problem(  # noqa: TRY301 - the same
                409, "run-has-ended", f"run {run} has ended as {run_status(status).state}"
            )
    except Problem as problem:
        return problem.to_answer()
    by = caller(headers, asked.by)
    cancel = CancelRequest(by=by, reason=asked.reason)
    await asyncio.to_thread(request_cancel, clients, run, cancel)
    await asyncio.to_thread(
        keep_action,
        clients,
        "cancel",
        f"run {run}",
        by=by,
        reason=asked.reason,
        outcome="requested",
    )
    await wake_up(starter, run)
    return _accepted(run)


async def redrive(
    clients: Clients, *, headers: Mapping[str, str], body: bytes = b"", now: datetime
) -> Answer:
    """Start what was dead-lettered again: one run's, or up to `maximum` messages.

    A run can be started with changes. The same request again gets the same answer.
    """
    try:
        asked = parse_body(Redrive, body, limit_bytes=REDRIVE_LIMIT_BYTES)
        if asked.run is None and asked.changes.to_document():
            raise Problem(  # noqa: TRY301 - one exit for all problems
                400, "invalid-request", "changes are for one run: name it", where="run"
            )
        order = RedriveOrder(
            run=asked.run,
            maximum=asked.maximum,
            changes=asked.changes,
            by=caller(headers, asked.by)[:100],
            reason=asked.reason,
            at=now,
        )
        redriven = await asyncio.to_thread(redrive_letters, clients, order)
    except Problem as problem:
        return problem.to_answer()
    except RedriveRefused as refusal:
        status = 400 if refusal.kind == "invalid-request" else 409
        return Problem(status, refusal.kind, str(refusal), where=refusal.where).to_answer()
    if asked.run is not None and not redriven:
        return Problem(
            404, "unknown-run", f"nothing of run {asked.run!r} is dead-lettered", where="run"
        ).to_answer()
    outcome = f"sent again: {', '.join(redriven) or 'none'}"
    on = f"run {asked.run}" if asked.run is not None else f"{asked.maximum} dead letters"
    await asyncio.to_thread(
        keep_action, clients, "redrive", on, by=order.by, reason=order.reason, outcome=outcome
    )
    return Answer(200, {"redriven": redriven})


def _accepted(instance: str) -> Answer:
    url = f"/api/runs/{instance}"
    return Answer(202, {"id": instance, "status_url": url}, headers={"Location": url})


def _is_run(status: DurableOrchestrationStatus) -> bool:
    return status.name == retraining.__name__


async def _find(starter: DurableOrchestrationClient, instance: str) -> DurableOrchestrationStatus:
    if _INSTANCE.fullmatch(instance) is None:
        raise _not_found(instance)
    status = await starter.get_status(instance)
    if not exists(status):
        raise _not_found(instance)
    return status


def _not_found(instance: str) -> Problem:
    return Problem(404, "unknown-run", f"there is no run {instance!r}; see GET /api/runs")


def _check_callback(url: str, settings: Settings) -> None:
    """Without DNS: the addresses of a name are checked whenever it is sent to."""
    try:
        receiver = parse_receiver(url)
        check_literal(receiver, settings.webhook_networks)
    except ReceiverRefused as error:
        raise Problem(400, "invalid-request", str(error), where="callback_url") from None
    if receiver.scheme != "https" and not settings.webhook_networks:
        raise Problem(
            400, "invalid-request", "a callback is sent by https only", where="callback_url"
        )
