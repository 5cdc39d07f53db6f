"""Landfall's composition root: every function by name, and nothing else.

The way of the data: `on_blob_events` → `landing` → `retraining` → `deliver_notification`. Beside
it: other systems (`start_run`), second chances (`on_retry`, `redrive`, `release`), and `reconcile`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import List  # noqa: UP035 - see event_triggers

import azure.durable_functions as df
import azure.functions as func

from handlers.alarms import raising as alarms
from handlers.api import models, page, pausing
from handlers.api.actions import list_actions as read_actions
from handlers.api.alarms import list_alarms as read_alarms
from handlers.api.dead_letters import discard_dead_letters as discard_letters
from handlers.api.dead_letters import get_dead_letter as read_letter
from handlers.api.dead_letters import list_dead_letters as read_letters
from handlers.api.dead_letters import redrive_dead_letters as redrive_letters
from handlers.api.openapi import get_openapi
from handlers.api.pipelines import get_pipeline as read_pipeline
from handlers.api.pipelines import list_pipelines as read_pipelines
from handlers.api.queues import list_queues as read_queues
from handlers.api.runs import get_run as read_run
from handlers.api.runs import list_runs as read_runs
from handlers.api.traces import get_trace as read_trace
from handlers.configuration.clients import Clients
from handlers.configuration.pipeline_files import load_pipelines
from handlers.configuration.settings import Settings
from handlers.durable.activity_adapter import functions as activity_functions
from handlers.messaging.retry_queue import handle_retry
from handlers.notifications.delivery import handle_delivery
from handlers.rollouts.starting import handle_rollout
from handlers.telemetry.measuring import measure
from handlers.telemetry.metrics import of_events
from handlers.triggers import http_api
from handlers.triggers.blob_created import handle_blob_events
from handlers.triggers.event_envelope import Delivered
from handlers.triggers.explain import answer_explain
from handlers.triggers.job_state_changed import handle_job_events
from handlers.triggers.reconciliation import reconcile as reconcile_all
from handlers.triggers.release import release_batch
from handlers.triggers.rollout_api import decide_rollout
from handlers.triggers.rollout_api import get_rollout as read_rollout
from handlers.triggers.rollout_api import list_rollouts as read_rollouts
from orchestrations.freezing import freezing
from orchestrations.landing import landing
from orchestrations.retraining import retraining
from orchestrations.rollout import rollout

logger = logging.getLogger("landfall")
settings = Settings(os.environ)
clients = Clients(settings)
# Read at once: a deployment with a broken pipeline file must not come up.
pipelines = load_pipelines(settings.pipelines_folder, records_container=settings.records_container)
HandleEvents = Callable[[Sequence[Delivered], df.DurableOrchestrationClient], Awaitable[None]]

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
    decisions = await handle_blob_events(clients, pipelines, starter, events, now=now)
    clients.telemetry.record(of_events(decisions))
    logger.info("%d blob events: %s", len(events), dict(decisions))


@event_triggers("job-events", direct="on_job_event")
async def on_job_events(
    events: Sequence[Delivered], starter: df.DurableOrchestrationClient
) -> None:
    """Jobs of Azure ML changed their states: wake the runs that wait for them."""
    await handle_job_events(clients, pipelines, starter, events, now=datetime.now(UTC))


@app.service_bus_queue_trigger(arg_name="message", queue_name="retries", connection="ServiceBus")
@app.durable_client_input(client_name="starter")
async def on_retry(message: func.ServiceBusMessage, starter: df.DurableOrchestrationClient) -> None:
    """A run's delay is over: start its next attempt."""
    await handle_retry(clients, starter, message.get_body())


@app.service_bus_queue_trigger(arg_name="message", queue_name="rollouts", connection="ServiceBus")
@app.durable_client_input(client_name="starter")
async def on_rollout(
    message: func.ServiceBusMessage, starter: df.DurableOrchestrationClient
) -> None:
    """A model was registered for an endpoint: roll it out."""
    await handle_rollout(clients, starter, message.get_body(), now=datetime.now(UTC))


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="notifications", connection="ServiceBus"
)
def deliver_notification(message: func.ServiceBusMessage) -> None:
    """One notification for one receiver."""
    handle_delivery(clients, message.get_body(), now=datetime.now(UTC))


@app.timer_trigger(arg_name="timer", schedule="%RECONCILE_SCHEDULE%")
@app.durable_client_input(client_name="starter")
async def reconcile(timer: func.TimerRequest, starter: df.DurableOrchestrationClient) -> None:
    """Find what a lost event or a broken instance left undone."""
    summary = await reconcile_all(clients, pipelines, starter, now=datetime.now(UTC))
    logger.info("reconciled%s: %s", " (late)" if timer.past_due else "", summary)


@app.timer_trigger(arg_name="timer", schedule="%RECONCILE_SCHEDULE%")
async def raise_alarms(timer: func.TimerRequest) -> None:
    """Alert operators to what should have happened and has not."""
    changes = await alarms.raise_alarms(clients, pipelines, now=datetime.now(UTC))
    logger.info("alarms%s: %s", " (late)" if timer.past_due else "", changes)
    await measure(clients, pipelines, now=datetime.now(UTC))


# The signature authenticates the caller; a function key would be a second secret to hand out.
@app.route("pipelines/{name}/runs", methods=["POST"], auth_level=func.AuthLevel.ANONYMOUS)
@app.durable_client_input(client_name="starter")
async def start_run(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """Another system asks for a run on what is in the zone now."""
    answer = await http_api.start_run(
        settings,
        pipelines,
        starter,
        name=req.route_params["name"],
        headers=req.headers,
        body=req.get_body(),
    )
    return answer.to_response()


@app.route("runs", methods=["GET"])
async def list_runs(req: func.HttpRequest) -> func.HttpResponse:
    """Runs, newest first: filtered, and in pages."""
    answer = await read_runs(clients, req.params)
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("runs/{id}", methods=["GET"])
@app.durable_client_input(client_name="starter")
async def get_run(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """One run with its timeline, or what became of one request."""
    answer = await read_run(clients, starter, run=req.route_params["id"])
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("traces/{id}", methods=["GET"])
async def get_trace(req: func.HttpRequest) -> func.HttpResponse:
    """One trace: what led from an event to a model, and how long it took."""
    answer = await read_trace(clients, trace=req.route_params["id"])
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("runs/{id}/cancel", methods=["POST"])
@app.durable_client_input(client_name="starter")
async def cancel_run(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """Ask a run to end its job."""
    answer = await http_api.cancel_run(
        clients,
        starter,
        run=req.route_params["id"],
        headers=req.headers,
        body=req.get_body(),
    )
    return answer.to_response()


@app.route("rollouts", methods=["GET"])
@app.durable_client_input(client_name="starter")
async def list_rollouts(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """Rollouts, newest first."""
    answer = await read_rollouts(clients, starter, req.params)
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("rollouts/{id}", methods=["GET"])
@app.durable_client_input(client_name="starter")
async def get_rollout(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """How far a model is on its way to an endpoint."""
    answer = await read_rollout(starter, rollout=req.route_params["id"])
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("rollouts/{id}/promote", methods=["POST"])
@app.durable_client_input(client_name="starter")
async def promote_rollout(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """End the step that a rollout bakes in: the next one begins."""
    answer = await decide_rollout(
        clients,
        starter,
        "promote",
        rollout=req.route_params["id"],
        headers=req.headers,
        body=req.get_body(),
    )
    return answer.to_response()


@app.route("rollouts/{id}/rollback", methods=["POST"])
@app.durable_client_input(client_name="starter")
async def roll_back_rollout(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """Set the traffic of before a rollout again."""
    answer = await decide_rollout(
        clients,
        starter,
        "rollback",
        rollout=req.route_params["id"],
        headers=req.headers,
        body=req.get_body(),
    )
    return answer.to_response()


@app.route("redrive", methods=["POST"])
async def redrive(req: func.HttpRequest) -> func.HttpResponse:
    """Start what was dead-lettered again, as it was or with changes."""
    answer = await http_api.redrive(
        clients, headers=req.headers, body=req.get_body(), now=datetime.now(UTC)
    )
    return answer.to_response()


@app.route("pipelines/{name}/release", methods=["POST"])
@app.durable_client_input(client_name="starter")
async def release(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """Let a held batch be trained on."""
    answer = await release_batch(
        clients,
        pipelines,
        starter,
        name=req.route_params["name"],
        headers=req.headers,
        body=req.get_body(),
    )
    return answer.to_response()


@app.route("pipelines/{name}/pause", methods=["POST"])
async def pause_pipeline(req: func.HttpRequest) -> func.HttpResponse:
    """Start no run of a pipeline: what lands is held."""
    answer = await pausing.pause_pipeline(
        clients, pipelines, headers=req.headers, body=req.get_body(), **req.route_params
    )
    return answer.to_response()


@app.route("pipelines/{name}/resume", methods=["POST"])
@app.durable_client_input(client_name="starter")
async def resume_pipeline(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """End a pause: what was held is trained on."""
    answer = await pausing.resume_pipeline(
        clients, pipelines, starter, headers=req.headers, body=req.get_body(), **req.route_params
    )
    return answer.to_response()


@app.route("explain", methods=["GET"])
async def explain(req: func.HttpRequest) -> func.HttpResponse:
    """What became of a blob, and why?"""
    answer = await answer_explain(clients, pipelines, req.params, now=datetime.now(UTC))
    return answer.to_response()


@app.route("pipelines", methods=["GET"])
@app.durable_client_input(client_name="starter")
async def list_pipelines(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """Every pipeline: what it does or waits for."""
    answer = await read_pipelines(clients, pipelines, starter, req.params, now=datetime.now(UTC))
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("pipelines/{name}", methods=["GET"])
@app.durable_client_input(client_name="starter")
async def get_pipeline(
    req: func.HttpRequest, starter: df.DurableOrchestrationClient
) -> func.HttpResponse:
    """One pipeline with its zones and its champion."""
    answer = await read_pipeline(
        clients, pipelines, starter, name=req.route_params["name"], now=datetime.now(UTC)
    )
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("pipelines/{name}/models", methods=["GET"])
async def list_models(req: func.HttpRequest) -> func.HttpResponse:
    """The versions of a pipeline's model, newest first."""
    name = req.route_params["name"]
    answer = await models.list_models(clients, pipelines, req.params, name=name)
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("pipelines/{name}/models/{version}", methods=["GET"])
async def get_model(req: func.HttpRequest) -> func.HttpResponse:
    """One version with its lineage."""
    answer = await models.get_model(clients, pipelines, **req.route_params)
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("pipelines/{name}/models/{version}/blobs", methods=["GET"])
async def list_model_blobs(req: func.HttpRequest) -> func.HttpResponse:
    """The blobs that a version was trained on."""
    answer = await models.list_model_blobs(clients, pipelines, req.params, **req.route_params)
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("pipelines/{name}/models/{version}/promote", methods=["POST"])
async def promote_model(req: func.HttpRequest) -> func.HttpResponse:
    """Put a version in service."""
    answer = await models.promote_model(
        clients, pipelines, headers=req.headers, body=req.get_body(), **req.route_params
    )
    return answer.to_response()


@app.route("pipelines/{name}/models/{version}/rollback", methods=["POST"])
async def roll_back_model(req: func.HttpRequest) -> func.HttpResponse:
    """Take the champion out of service."""
    answer = await models.roll_back_model(
        clients, pipelines, headers=req.headers, body=req.get_body(), **req.route_params
    )
    return answer.to_response()


@app.route("dead-letters", methods=["GET"])
async def list_dead_letters(req: func.HttpRequest) -> func.HttpResponse:
    """What gave up, oldest first."""
    answer = await read_letters(clients, req.params)
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("dead-letters/{id}", methods=["GET"])
async def get_dead_letter(req: func.HttpRequest) -> func.HttpResponse:
    """One dead letter with its body."""
    answer = await read_letter(clients, number=req.route_params["id"])
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("dead-letters/redrive", methods=["POST"])
async def redrive_dead_letters(req: func.HttpRequest) -> func.HttpResponse:
    """Send dead letters again, each as its next attempt."""
    answer = await redrive_letters(clients, headers=req.headers, body=req.get_body())
    return answer.to_response()


@app.route("dead-letters/discard", methods=["POST"])
async def discard_dead_letters(req: func.HttpRequest) -> func.HttpResponse:
    """Remove dead letters, with a reason."""
    answer = await discard_letters(clients, headers=req.headers, body=req.get_body())
    return answer.to_response()


@app.route("alarms", methods=["GET"])
async def list_alarms(req: func.HttpRequest) -> func.HttpResponse:
    """Silence alarms that are on."""
    answer = await read_alarms(clients, req.params)
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("queues", methods=["GET"])
async def list_queues(req: func.HttpRequest) -> func.HttpResponse:
    """Who holds which nodes, who waits for them and why, and what was spent."""
    answer = await read_queues(clients, req.params, now=datetime.now(UTC))
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("actions", methods=["GET"])
async def list_actions(req: func.HttpRequest) -> func.HttpResponse:
    """What people did over the API."""
    answer = await read_actions(clients, req.params)
    return answer.to_conditional_response(req.headers.get("if-none-match"))


@app.route("openapi.json", methods=["GET"])
async def openapi(req: func.HttpRequest) -> func.HttpResponse:
    """The HTTP API, described."""
    answer = await get_openapi()
    return answer.to_conditional_response(req.headers.get("if-none-match"))


# The page holds no data: it asks the API, with the key that its user gives it.
@app.route("ui/{*file}", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
async def ui(req: func.HttpRequest) -> func.HttpResponse:
    """The operators' page and its files."""
    return page.serve(req.route_params.get("file", ""), req.headers.get("if-none-match"))
