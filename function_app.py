"""Landfall's composition root: every function by name, and nothing else.

The way of the data: `on_blob_events` → `landing` → `retraining` → `deliver_notification`. Beside
it: other systems (`start_run`), second chances (`on_retry`, `redrive`, `release`), and `reconcile`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, List, Literal  # noqa: UP035 - see event_triggers

import azure.durable_functions as df
import azure.functions as func

from handlers import alarms, api, messaging, notifications, rollouts, telemetry, triggers
from handlers.configuration.clients import Clients
from handlers.configuration.pipeline_files import load_pipelines
from handlers.configuration.settings import Settings
from handlers.durable.activity_adapter import functions as activity_functions
from orchestrations.freezing import freezing
from orchestrations.landing import landing
from orchestrations.retraining import retraining
from orchestrations.rollout import rollout

if TYPE_CHECKING:
    from handlers.triggers.event_envelope import Delivered
    from handlers.triggers.problem_details import Answer

    HandleEvents = Callable[[Sequence[Delivered], df.DurableOrchestrationClient], Awaitable[None]]
    Respond = Callable[["Request"], Awaitable[Answer]]

logger = logging.getLogger("landfall")
settings = Settings(os.environ)
clients = Clients(settings)
# Read at once: a deployment with a broken pipeline file must not come up.
pipelines = load_pipelines(settings.pipelines_folder, records_container=settings.records_container)

app = df.DFApp(http_auth_level=func.AuthLevel.FUNCTION)

for orchestrator in (landing, freezing, retraining, rollout):
    app.orchestration_trigger(context_name="context")(orchestrator)

for function in activity_functions(clients):
    app.activity_trigger(input_name="request_document")(function)


def event_triggers(queue: str, *, direct: str) -> Callable[[HandleEvents], HandleEvents]:
    """Register a function for the events of a system topic, under two triggers.

    Args:
        queue: Event Grid delivers to it; the function is called with many events at a time.
        direct: name of the trigger that Event Grid calls itself, with one event: for a small
            deployment whose function app is public.
    """

    def register(handle: HandleEvents) -> HandleEvents:
        async def from_queue(
            messages: List[func.ServiceBusMessage],  # noqa: UP006 - the worker refuses list[…]
            starter: df.DurableOrchestrationClient,
        ) -> None:
            await handle(messages, starter)

        async def from_event_grid(
            event: func.EventGridEvent, starter: df.DurableOrchestrationClient
        ) -> None:
            await handle([event], starter)

        from_queue.__name__, from_event_grid.__name__ = handle.__name__, direct
        with_client = app.durable_client_input(client_name="starter")
        app.event_grid_trigger(arg_name="event")(with_client(from_event_grid))
        app.service_bus_queue_trigger(
            arg_name="messages",
            queue_name=queue,
            connection="ServiceBus",
            cardinality=func.Cardinality.MANY,
        )(with_client(from_queue))
        return handle

    return register


@event_triggers("blob-events", direct="on_blob_event")
async def on_blob_events(
    events: Sequence[Delivered], starter: df.DurableOrchestrationClient
) -> None:
    """Data landed: have a landing under way."""
    now = datetime.now(UTC)
    decisions = await triggers.blob_created.handle_blob_events(
        clients, pipelines, starter, events, now=now
    )
    clients.telemetry.record(telemetry.metrics.of_events(decisions))
    logger.info("%d blob events: %s", len(events), dict(decisions))


@event_triggers("job-events", direct="on_job_event")
async def on_job_events(
    events: Sequence[Delivered], starter: df.DurableOrchestrationClient
) -> None:
    """Jobs of Azure ML changed their states: wake the runs that wait for them."""
    await triggers.job_state_changed.handle_job_events(
        clients, pipelines, starter, events, now=datetime.now(UTC)
    )


@app.service_bus_queue_trigger(arg_name="message", queue_name="retries", connection="ServiceBus")
@app.durable_client_input(client_name="starter")
async def on_retry(message: func.ServiceBusMessage, starter: df.DurableOrchestrationClient) -> None:
    """A run's delay is over: start its next attempt."""
    await messaging.retry_queue.handle_retry(clients, starter, message.get_body())


@app.service_bus_queue_trigger(arg_name="message", queue_name="rollouts", connection="ServiceBus")
@app.durable_client_input(client_name="starter")
async def on_rollout(
    message: func.ServiceBusMessage, starter: df.DurableOrchestrationClient
) -> None:
    """A model was registered for an endpoint: roll it out."""
    await rollouts.starting.handle_rollout(
        clients, starter, message.get_body(), now=datetime.now(UTC)
    )


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="notifications", connection="ServiceBus"
)
def deliver_notification(message: func.ServiceBusMessage) -> None:
    """One notification for one receiver."""
    notifications.delivery.handle_delivery(clients, message.get_body(), now=datetime.now(UTC))


@app.timer_trigger(arg_name="timer", schedule="%RECONCILE_SCHEDULE%")
@app.durable_client_input(client_name="starter")
async def reconcile(timer: func.TimerRequest, starter: df.DurableOrchestrationClient) -> None:
    """Find what a lost event or a broken instance left undone."""
    summary = await triggers.reconciliation.reconcile(
        clients, pipelines, starter, now=datetime.now(UTC)
    )
    logger.info("reconciled%s: %s", " (late)" if timer.past_due else "", summary)


@app.timer_trigger(arg_name="timer", schedule="%RECONCILE_SCHEDULE%")
async def raise_alarms(timer: func.TimerRequest) -> None:
    """Alert operators to what should have happened and has not."""
    changes = await alarms.raising.raise_alarms(clients, pipelines, now=datetime.now(UTC))
    logger.info("alarms%s: %s", " (late)" if timer.past_due else "", changes)
    await telemetry.measuring.measure(clients, pipelines, now=datetime.now(UTC))


@dataclass(frozen=True)
class Request:
    """A request of the API, and the durable client for its answer."""

    http: func.HttpRequest
    starter: df.DurableOrchestrationClient

    @property
    def action(self) -> dict[str, Any]:
        """Arguments of an action: its caller's headers and body."""
        return {"headers": self.http.headers, "body": self.http.get_body()}


def route(method: Literal["GET", "POST"], path: str) -> Callable[[Respond], Respond]:
    """Register a route of the API. Answers to GET have an ETag.

    The host lets callers with a function key in. Where app setting `API_SIGN_IN` is `entra`, it
    lets everybody in, and `handlers.triggers.sign_in` those who are signed in.
    """
    by_key = settings.sign_in == "key"

    def register(respond: Respond) -> Respond:
        async def function(
            req: func.HttpRequest, starter: df.DurableOrchestrationClient
        ) -> func.HttpResponse:
            refused = triggers.sign_in.check_sign_in(settings, method, req.headers)
            answer = refused or await respond(Request(req, starter))
            if method == "GET":
                return answer.to_conditional_response(req.headers.get("if-none-match"))
            return answer.to_response()

        function.__name__ = respond.__name__
        level = func.AuthLevel.FUNCTION if by_key else func.AuthLevel.ANONYMOUS
        with_client = app.durable_client_input(client_name="starter")
        app.route(path, methods=[method], auth_level=level)(with_client(function))
        return respond

    return register


# The signature authenticates the caller; a function key would be a second secret to hand out.
@app.route("pipelines/{name}/runs", methods=["POST"], auth_level=func.AuthLevel.ANONYMOUS)
@app.durable_client_input(client_name="starter")
async def start_run(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """Another system asks for a run on what is in the zone now."""
    answer = await triggers.http_api.start_run(
        settings,
        pipelines,
        starter,
        name=req.route_params["name"],
        headers=req.headers,
        body=req.get_body(),
    )
    return answer.to_response()


# The page holds no data: it asks the API, with the key that its user gives it.
@app.route("ui/{*file}", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
async def ui(req: func.HttpRequest) -> func.HttpResponse:
    """The operators' page and its files."""
    return api.page.serve(req.route_params.get("file", ""), req.headers.get("if-none-match"))


@route("GET", "runs")
async def list_runs(request: Request) -> Answer:
    """Runs, newest first: filtered, and in pages."""
    return await api.runs.list_runs(clients, request.http.params)


@route("GET", "runs/{id}")
async def get_run(request: Request) -> Answer:
    """One run, or what became of a request."""
    return await api.runs.get_run(clients, request.starter, run=request.http.route_params["id"])


@route("GET", "traces/{id}")
async def get_trace(request: Request) -> Answer:
    """One trace: what led from an event to a model, and how long it took."""
    return await api.traces.get_trace(clients, trace=request.http.route_params["id"])


@route("POST", "runs/{id}/cancel")
async def cancel_run(request: Request) -> Answer:
    """Ask a run to end its job."""
    return await triggers.http_api.cancel_run(
        clients, request.starter, run=request.http.route_params["id"], **request.action
    )


@route("GET", "rollouts")
async def list_rollouts(request: Request) -> Answer:
    """Rollouts, newest first."""
    return await triggers.rollout_api.list_rollouts(clients, request.starter, request.http.params)


@route("GET", "rollouts/{id}")
async def get_rollout(request: Request) -> Answer:
    """How far a model is on its way to an endpoint."""
    return await triggers.rollout_api.get_rollout(
        request.starter, rollout=request.http.route_params["id"]
    )


@route("POST", "rollouts/{id}/promote")
async def promote_rollout(request: Request) -> Answer:
    """End the step that a rollout bakes in: the next one begins."""
    return await triggers.rollout_api.decide_rollout(
        clients,
        request.starter,
        "promote",
        rollout=request.http.route_params["id"],
        **request.action,
    )


@route("POST", "rollouts/{id}/rollback")
async def roll_back_rollout(request: Request) -> Answer:
    """Set the traffic of before a rollout again."""
    return await triggers.rollout_api.decide_rollout(
        clients,
        request.starter,
        "rollback",
        rollout=request.http.route_params["id"],
        **request.action,
    )


@route("POST", "redrive")
async def redrive(request: Request) -> Answer:
    """Start what was dead-lettered again, as it was or with changes."""
    return await triggers.http_api.redrive(clients, **request.action, now=datetime.now(UTC))


@route("POST", "pipelines/{name}/release")
async def release(request: Request) -> Answer:
    """Let a held batch be trained on."""
    return await triggers.release.release_batch(
        clients, pipelines, request.starter, **request.http.route_params, **request.action
    )


@route("POST", "pipelines/{name}/pause")
async def pause_pipeline(request: Request) -> Answer:
    """Start no run of a pipeline: what lands is held."""
    return await api.pausing.pause_pipeline(
        clients, pipelines, **request.http.route_params, **request.action
    )


@route("POST", "pipelines/{name}/resume")
async def resume_pipeline(request: Request) -> Answer:
    """End a pause: what was held is trained on."""
    return await api.pausing.resume_pipeline(
        clients, pipelines, request.starter, **request.http.route_params, **request.action
    )


@route("GET", "explain")
async def explain(request: Request) -> Answer:
    """A blob's history, with the reason of each decision."""
    return await triggers.explain.answer_explain(
        clients, pipelines, request.http.params, now=datetime.now(UTC)
    )


@route("GET", "pipelines")
async def list_pipelines(request: Request) -> Answer:
    """Every pipeline: what it does or waits for."""
    return await api.pipelines.list_pipelines(
        clients, pipelines, request.starter, request.http.params, now=datetime.now(UTC)
    )


@route("GET", "pipelines/{name}")
async def get_pipeline(request: Request) -> Answer:
    """One pipeline with its zones and its champion."""
    return await api.pipelines.get_pipeline(
        clients, pipelines, request.starter, **request.http.route_params, now=datetime.now(UTC)
    )


@route("GET", "pipelines/{name}/models")
async def list_models(request: Request) -> Answer:
    """The versions of a pipeline's model, newest first."""
    return await api.models.list_models(
        clients, pipelines, request.http.params, **request.http.route_params
    )


@route("GET", "pipelines/{name}/models/{version}")
async def get_model(request: Request) -> Answer:
    """One version with its lineage."""
    return await api.models.get_model(clients, pipelines, **request.http.route_params)


@route("GET", "pipelines/{name}/models/{version}/blobs")
async def list_model_blobs(request: Request) -> Answer:
    """The blobs that a version was trained on."""
    return await api.models.list_model_blobs(
        clients, pipelines, request.http.params, **request.http.route_params
    )


@route("POST", "pipelines/{name}/models/{version}/promote")
async def promote_model(request: Request) -> Answer:
    """Put a version in service."""
    return await api.models.promote_model(
        clients, pipelines, **request.http.route_params, **request.action
    )


@route("POST", "pipelines/{name}/models/{version}/rollback")
async def roll_back_model(request: Request) -> Answer:
    """Take the champion out of service."""
    return await api.models.roll_back_model(
        clients, pipelines, **request.http.route_params, **request.action
    )


@route("GET", "dead-letters")
async def list_dead_letters(request: Request) -> Answer:
    """Dead letters, oldest first."""
    return await api.dead_letters.list_dead_letters(clients, request.http.params)


@route("GET", "dead-letters/{id}")
async def get_dead_letter(request: Request) -> Answer:
    """One dead letter with its body."""
    return await api.dead_letters.get_dead_letter(clients, number=request.http.route_params["id"])


@route("POST", "dead-letters/redrive")
async def redrive_dead_letters(request: Request) -> Answer:
    """Send dead letters again, each as its next attempt."""
    return await api.dead_letters.redrive_dead_letters(clients, **request.action)


@route("POST", "dead-letters/discard")
async def discard_dead_letters(request: Request) -> Answer:
    """Remove dead letters, with a reason."""
    return await api.dead_letters.discard_dead_letters(clients, **request.action)


@route("GET", "alarms")
async def list_alarms(request: Request) -> Answer:
    """Silence alarms that are on."""
    return await api.alarms.list_alarms(clients, request.http.params)


@route("GET", "queues")
async def list_queues(request: Request) -> Answer:
    """Queues: the runs that hold nodes, those that wait and why, and the costs."""
    return await api.queues.list_queues(clients, request.http.params, now=datetime.now(UTC))


@route("GET", "actions")
async def list_actions(request: Request) -> Answer:
    """Actions of people over the API."""
    return await api.actions.list_actions(clients, request.http.params)


@route("GET", "openapi.json")
async def openapi(_request: Request) -> Answer:
    """The HTTP API, described."""
    return await api.openapi.get_openapi()
