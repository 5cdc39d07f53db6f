"""Landfall's composition root: every function by name, and nothing else.

The way of the data: `on_blob_event` → `landing` → `retraining` → `deliver_notification`; around it
other systems (`start_run`), the second chance (`on_retry`, `redrive`), and the broom (`reconcile`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import UTC, datetime

import azure.durable_functions as df
import azure.functions as func

from handlers import http_api
from handlers.activity import as_activity
from handlers.capacity import ensure_capacity
from handlers.claims import check_superseded, claim_dataset
from handlers.clients import Clients
from handlers.dataset import register_dataset
from handlers.job_triggers import handle_job_event
from handlers.landing_trigger import handle_blob_event
from handlers.landing_zone import freeze_manifest, quarantine_files, survey_zone
from handlers.model_registry import register_model
from handlers.notifications import handle_delivery, publish_notification
from handlers.pipelines import load_pipelines
from handlers.reconciliation import reconcile as reconcile_all
from handlers.results import read_results
from handlers.retry_queue import dead_letter, handle_retry, schedule_retry
from handlers.settings import Settings
from handlers.training_job import cancel_job, get_job, submit_job
from handlers.windows import record_window
from orchestrations import activities
from orchestrations.landing import landing
from orchestrations.retraining import retraining

settings = Settings(os.environ)
clients = Clients(settings)
# Read at once: a deployment with a broken pipeline file must not come up.
pipelines = load_pipelines(settings.pipelines_folder)
app = df.DFApp(http_auth_level=func.AuthLevel.FUNCTION)

for orchestrator in (landing, retraining):
    app.orchestration_trigger(context_name="context")(orchestrator)

for activity, function in (
    (activities.SURVEY_ZONE, survey_zone),
    (activities.FREEZE_MANIFEST, freeze_manifest),
    (activities.CLAIM_DATASET, claim_dataset),
    (activities.RECORD_WINDOW, record_window),
    (activities.CHECK_SUPERSEDED, check_superseded),
    (activities.REGISTER_DATASET, register_dataset),
    (activities.ENSURE_CAPACITY, ensure_capacity),
    (activities.SUBMIT_JOB, submit_job),
    (activities.GET_JOB, get_job),
    (activities.CANCEL_JOB, cancel_job),
    (activities.READ_RESULTS, read_results),
    (activities.REGISTER_MODEL, register_model),
    (activities.QUARANTINE_FILES, quarantine_files),
    (activities.SCHEDULE_RETRY, schedule_retry),
    (activities.DEAD_LETTER, dead_letter),
    (activities.PUBLISH_NOTIFICATION, publish_notification),
):
    app.activity_trigger(input_name="request")(as_activity(activity, function, clients))


@app.event_grid_trigger(arg_name="event")
@app.durable_client_input(client_name="starter")
async def on_blob_event(event: func.EventGridEvent, starter: df.DurableOrchestrationClient) -> None:
    """Data landed: decide on the event, and have a landing under way."""
    now = datetime.now(UTC)
    decision = await handle_blob_event(clients, pipelines, starter, event, now=now)
    logging.info("%s: %s", event.subject, decision)


@app.event_grid_trigger(arg_name="event")
@app.durable_client_input(client_name="starter")
async def on_job_event(event: func.EventGridEvent, starter: df.DurableOrchestrationClient) -> None:
    """A job of Azure ML changed its state: the run that waits for it looks at once."""
    await handle_job_event(clients, starter, event)
