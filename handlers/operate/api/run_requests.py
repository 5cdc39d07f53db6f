"""Start a run by a signed request, and cancel a run, over HTTP."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from typing import Annotated, Any

from azure.core.exceptions import AzureError
from azure.durable_functions import DurableOrchestrationClient
from pydantic import BaseModel, ConfigDict, Field, model_validator

from handlers.notify.webhooks import ID_HEADER, BadSignature, parse_secrets, verify
from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.requests import (
    Accepted,
    Problem,
    check_length,
    find_pipeline,
    invalid_request,
    parse_body,
)
from handlers.operate.api.runs import INSTANCE_ID, unknown_run
from handlers.platform.bulkheads import CANCELLATIONS, PART_SECONDS, STORAGE
from handlers.platform.clients import Clients
from handlers.platform.instances import exists, is_live, run_status, start_once, wake_up
from handlers.platform.run_records import request_cancel
from handlers.platform.settings import Settings
from handlers.platform.spans import use_parent_span
from orchestrations.configuration.parameters import PARAMETERS_LIMIT, Value, problem_with
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import BatchTrace, LandingRequest
from orchestrations.contracts.runs import START_REASON_LIMIT_CHARACTERS, CancelRequest
from orchestrations.landing.landing import landing
from orchestrations.names import request_instance
from orchestrations.platform.trace_context import HEADER, TraceContext
from orchestrations.training.retraining import retraining

logger = logging.getLogger(__name__)

INBOUND_SECRET_SETTING = "INBOUND_WEBHOOK_SECRET"  # noqa: S105 - the name of a setting
IDEMPOTENCY_HEADER = "idempotency-key"
IDEMPOTENCY_KEY_LIMIT_CHARACTERS = 255


class StartRun(BaseModel):
    """Body of POST /api/pipelines/{name}/runs; every key is optional."""

    model_config = ConfigDict(extra="forbid", strict=True)

    receiver: str | None = None
    parameters: dict[str, Value] = Field(default={}, max_length=PARAMETERS_LIMIT)
    """Values of parameters that the pipeline declares; the others have their defaults."""
    reason: str | None = Field(default=None, min_length=1, max_length=START_REASON_LIMIT_CHARACTERS)
    idempotency_key: str | None = Field(
        default=None, min_length=1, max_length=IDEMPOTENCY_KEY_LIMIT_CHARACTERS
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_callback_url(cls, body: Any) -> Any:
        if isinstance(body, dict) and "callback_url" in body:
            raise ValueError(
                "callback_url was removed: let an operator add the URL to notify.webhooks in "
                "pipeline.yml, and give the webhook's name as receiver"
            )
        return body  # pyright: ignore[reportUnknownVariableType] - not validated yet


class TrainPipeline(Asked):
    """Body of POST /api/pipelines/{name}/train."""

    reason: str = Field(min_length=1, max_length=START_REASON_LIMIT_CHARACTERS)
    parameters: dict[str, Value] = Field(default={}, max_length=PARAMETERS_LIMIT)
    """Values of parameters that the pipeline declares; the others have their defaults."""


class CancelRun(Asked):
    """Body of POST /api/runs/{run}/cancel; every key is optional."""

    reason: str = Field(default="no reason was given", min_length=1, max_length=1_000)


async def start_run(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    *,
    name: str,
    headers: Mapping[str, str],
    body: Annotated[bytes, StartRun],
) -> Accepted:
    """Freeze the current content of the pipeline's zone, and train on it.

    The request is signed as a webhook (`webhook-id`, `webhook-timestamp`, `webhook-signature`) with
    the secret in `INBOUND_WEBHOOK_SECRET`. The idempotency key is the body's `idempotency_key`, by
    default `webhook-id`; both are signed. A repeated key starts nothing and gets the same answer.

    Raises:
        Problem: 401 without a valid signature (checked first, except for the length), 404 for an
            unknown pipeline, 400 and 413 for a malformed request.
        InvalidSetting: no secret is set.
    """
    settings = clients.settings
    check_length(body)
    try:
        value = settings.required(INBOUND_SECRET_SETTING)
        message_id = verify(parse_secrets(value, setting=INBOUND_SECRET_SETTING), headers, body)
    except BadSignature as error:
        raise Problem(401, "bad-signature", str(error)) from None
    pipeline = find_pipeline(pipelines, name)
    start = parse_body(StartRun, body)
    key = start.idempotency_key or message_id
    if len(key) > IDEMPOTENCY_KEY_LIMIT_CHARACTERS:
        raise invalid_request(
            f"it has at most {IDEMPOTENCY_KEY_LIMIT_CHARACTERS} characters", where=ID_HEADER
        )
    if headers.get(IDEMPOTENCY_HEADER, key) != key:
        # The header is not signed: an attacker could replay a recorded request under any key.
        raise invalid_request(
            "the header is not signed: put the key into the body, as idempotency_key",
            where=IDEMPOTENCY_HEADER,
        )
    receivers = [webhook.name for webhook in pipeline.notify.webhooks]
    if start.receiver is not None and start.receiver not in receivers:
        known = ", ".join(receivers) or "none"
        raise invalid_request(
            f"pipeline {name} has no such receiver; its webhooks are: {known}", where="receiver"
        )
    request = _request(
        pipeline,
        start.parameters,
        receiver=start.receiver,
        reason=start.reason,
        trace=_trace(settings, headers.get(HEADER)),
    )
    return await _start(starter, request, key)


async def train_pipeline(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    body: TrainPipeline,
) -> Accepted:
    """Train on the current content of the zone, also if it was trained on before.

    For people: the signed request of other systems is `POST /api/pipelines/{name}/runs`. What runs
    on the same content answers it; when that has ended, there is a new run.
    """
    trace = _trace(clients.settings, None)
    request = _request(pipeline, body.parameters, reason=body.reason, trace=trace)
    accepted = await _start(starter, request, uuid.uuid4().hex)
    values = ", ".join(f"{name}={json.dumps(value)}" for name, value in body.parameters.items())
    outcome = f"{accepted.id}{f' with {values}' if values else ''}"
    on = f"pipeline {pipeline.name}"
    await STORAGE.ask(keep_action, clients, "train", on, body, outcome=outcome)
    return accepted


def _request(pipeline: Pipeline, parameters: Mapping[str, Value], **fields: Any) -> LandingRequest:
    """A request for a landing.

    Raises:
        Problem: 400, the pipeline does not take the parameters.
    """
    problem = problem_with(pipeline.parameters, parameters)
    if problem is not None:
        raise invalid_request(problem[1], where=f"parameters.{problem[0]}")
    return LandingRequest(
        pipeline=pipeline.name,
        opened_by="request",
        settled=True,
        parameters=dict(parameters),
        **fields,
    )


async def _start(
    starter: DurableOrchestrationClient, request: LandingRequest, key: str
) -> Accepted:
    instance, trace = request_instance(request.pipeline, key), request.trace
    with use_parent_span(trace and trace.parent):
        started = await start_once(starter, landing.__name__, instance, request.to_dict())
    logger.info("%s: %s", instance, "started" if started else "was started before")
    return Accepted(id=instance, status_url=f"/api/runs/{instance}")


def _trace(settings: Settings, caller: str | None) -> BatchTrace | None:
    """The trace of the batch: the caller's, if the request has one."""
    if TraceContext.parse(caller) is not None:
        return BatchTrace(parent=caller)
    return BatchTrace() if settings.sends_telemetry else None


async def cancel_run(
    clients: Clients, starter: DurableOrchestrationClient, request: CancelRun, *, run: str
) -> Accepted:
    """Request that a run cancels its job.

    The request is recorded before the run is woken up: a run that misses the event, or has not
    submitted its job yet, finds the record at its next poll. Only the task hub and this one record
    are needed: neither Service Bus nor other requests to storage can delay it. The action is
    recorded last; if that fails, it is logged.
    """
    if INSTANCE_ID.fullmatch(run) is None:
        raise unknown_run(run)
    status = await starter.get_status(run)
    if not exists(status) or status.name != retraining.__name__:
        raise unknown_run(run)
    if not is_live(status):
        state = run_status(status).state
        raise Problem(409, "run-has-ended", f"run {run} has ended as {state}")
    cancel = CancelRequest(by=request.by, reason=request.reason)
    await CANCELLATIONS.ask(request_cancel, clients, run, cancel)
    await wake_up(starter, run)
    try:
        await CANCELLATIONS.ask_within(
            PART_SECONDS, keep_action, clients, "cancel", f"run {run}", request, outcome="requested"
        )
    except (AzureError, TimeoutError) as error:
        logger.warning("action cancel of run %s was not recorded: %s", run, type(error).__name__)
    return Accepted(id=run, status_url=f"/api/runs/{run}")
