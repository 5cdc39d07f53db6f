"""Landfall's composition root: registers every function of the app.

The data's path: `on_blob_events` → `landing` → `retraining` → `deliver_notification`. In addition
there are the HTTP API (`handlers.operate.api.routes`), later attempts (`on_retry`), and
`reconcile`. A function imports its handler when it is called, so a cold start does not load all
handlers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, List  # noqa: UP035 - see event_triggers

import azure.durable_functions as df
import azure.functions as func

from handlers.operate.api.routes import ROUTES, Route
from handlers.platform.activity_adapter import functions as activity_functions
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import load_pipelines
from handlers.platform.settings import Settings
from orchestrations.errors import OfAnotherRelease
from orchestrations.landing.forgetting import forgetting
from orchestrations.landing.freezing import freezing
from orchestrations.landing.landing import landing
from orchestrations.rollout.rollout import rollout
from orchestrations.training.promotion import promotion
from orchestrations.training.retraining import retraining

if TYPE_CHECKING:
    from handlers.platform.event_envelope import Delivered

    HandleEvents = Callable[[Sequence[Delivered], df.DurableOrchestrationClient], Awaitable[None]]

logger = logging.getLogger("landfall")
settings = Settings(os.environ)
clients = Clients(settings)
# Read at start: a deployment with an invalid pipeline file must not start.
pipelines = load_pipelines(settings.pipelines_folder, records_container=settings.records_container)

app = df.DFApp(http_auth_level=func.AuthLevel.FUNCTION)

for orchestrator in (landing, freezing, forgetting, retraining, rollout, promotion):
    app.orchestration_trigger(context_name="context")(orchestrator)

for function in activity_functions(clients):
    app.activity_trigger(input_name="request_document")(function)


def event_triggers(queue: str, *, direct: str) -> Callable[[HandleEvents], HandleEvents]:
    """Register a function for the events of a system topic, with two triggers.

    Args:
        queue: the queue that Event Grid delivers to; the function gets many events per call.
        direct: name of the trigger that Event Grid calls directly with one event, for a small
            deployment with a public function app.
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
    """Start or wake landings for new data."""
    from handlers.landing.blob_created import handle_blob_events
    from handlers.platform.metrics import event_measurements

    now = datetime.now(UTC)
    decisions = await handle_blob_events(clients, pipelines, starter, events, now=now)
    clients.telemetry.record(event_measurements(decisions))
    logger.info("%d blob events: %s", len(events), dict(decisions))


@event_triggers("job-events", direct="on_job_event")
async def on_job_events(
    events: Sequence[Delivered], starter: df.DurableOrchestrationClient
) -> None:
    """Wake the runs whose jobs have changed their state."""
    from handlers.operate.job_events import handle_job_events

    await handle_job_events(clients, pipelines, starter, events, now=datetime.now(UTC))


@app.service_bus_queue_trigger(arg_name="message", queue_name="retries", connection="ServiceBus")
@app.durable_client_input(client_name="starter")
async def on_retry(message: func.ServiceBusMessage, starter: df.DurableOrchestrationClient) -> None:
    """Start the next attempt of a run, whose delay has ended."""
    from handlers.operate.redrive import put_back
    from handlers.training.retries import handle_retry

    try:
        await handle_retry(clients, starter, message.get_body())
    except OfAnotherRelease as error:
        now = datetime.now(UTC)
        await asyncio.to_thread(put_back, clients, "retries", message, error, now=now)


@app.service_bus_queue_trigger(arg_name="message", queue_name="rollouts", connection="ServiceBus")
@app.durable_client_input(client_name="starter")
async def on_rollout(
    message: func.ServiceBusMessage, starter: df.DurableOrchestrationClient
) -> None:
    """Roll out a model that was registered for an endpoint."""
    from handlers.operate.redrive import put_back
    from handlers.rollout.requests import handle_rollout

    now = datetime.now(UTC)
    try:
        await handle_rollout(clients, starter, message.get_body(), now=now)
    except OfAnotherRelease as error:
        await asyncio.to_thread(put_back, clients, "rollouts", message, error, now=now)


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="notifications", connection="ServiceBus"
)
def deliver_notification(message: func.ServiceBusMessage) -> None:
    """Deliver one notification to one receiver."""
    from handlers.notify.delivery import handle_delivery
    from handlers.operate.redrive import put_back

    now = datetime.now(UTC)
    try:
        handle_delivery(clients, message.get_body(), now=now)
    except OfAnotherRelease as error:
        put_back(clients, "notifications", message, error, now=now)


@app.timer_trigger(arg_name="timer", schedule="%RECONCILE_SCHEDULE%")
@app.durable_client_input(client_name="starter")
async def reconcile(timer: func.TimerRequest, starter: df.DurableOrchestrationClient) -> None:
    """Find and repair work that was lost with an event or an instance."""
    from handlers.operate.reconciliation import reconciliation

    now = datetime.now(UTC)
    summary = await reconciliation.reconcile(clients, pipelines, starter, now=now)
    logger.info("reconciled%s: %s", " (late)" if timer.past_due else "", summary)


@app.timer_trigger(arg_name="timer", schedule="%RECONCILE_SCHEDULE%")
def raise_alarms(timer: func.TimerRequest) -> None:
    """Alert operators to expected events that did not happen, and measure the gauges."""
    from handlers.operate.api import alarms
    from handlers.operate.api.alarms import measure

    changes = alarms.raise_alarms(clients, pipelines, now=datetime.now(UTC))
    logger.info("alarms%s: %s", " (late)" if timer.past_due else "", changes)
    measure(clients, pipelines, now=datetime.now(UTC))


def serve(route: Route) -> None:
    """Register the function of a route of the API. Answers to GET have an ETag.

    By default, the host checks the function key. If app setting `API_SIGN_IN` is `entra`, the host
    admits all requests, and `handlers.operate.api.endpoint` checks the callers. The function of a
    signed request or link checks the signature itself.
    """

    async def function(
        req: func.HttpRequest, starter: df.DurableOrchestrationClient
    ) -> func.HttpResponse:
        from handlers.operate.api import endpoint
        from handlers.operate.api.endpoint import check_sign_in

        if not route.signed:
            refused = check_sign_in(settings, route.method, req.headers)
            if refused is not None:
                return refused.to_response()
        request = endpoint.Request(
            clients=clients,
            pipelines=pipelines,
            starter=starter,
            now=datetime.now(UTC),
            path=req.route_params,
            query=req.params,
            headers=req.headers,
            body=req.get_body(),
        )
        answer = await endpoint.answer(route.load(), request, service=route.service)
        if route.method == "GET":
            return answer.to_conditional_response(req.headers.get("if-none-match"))
        return answer.to_response()

    function.__name__ = route.name
    by_key = settings.sign_in == "key" and not route.signed
    level = func.AuthLevel.FUNCTION if by_key else func.AuthLevel.ANONYMOUS
    with_client = app.durable_client_input(client_name="starter")
    app.route(route.path, methods=[route.method], auth_level=level)(with_client(function))


for each in ROUTES:
    serve(each)


# Anonymous: the page contains no data. It calls the API with the key that its user enters.
@app.route("ui/{*file}", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
async def ui(req: func.HttpRequest) -> func.HttpResponse:
    """Serve the operators' page and its files."""
    from handlers.operate.api import page

    return page.serve(req.route_params.get("file", ""), req.headers.get("if-none-match"))
