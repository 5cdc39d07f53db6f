"""Start a retraining when a monitor of Azure ML finds a breached threshold.

A monitor tags its run if a signal breaches a threshold, and Event Grid delivers that run's status
change. The tag's text names the signal; the signal's name begins with the name of its pipeline.
https://learn.microsoft.com/azure/machine-learning/how-to-monitor-model-performance
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

from azure.durable_functions import DurableOrchestrationClient

from handlers.platform.event_envelope import lower_keys
from handlers.platform.instances import is_live, parsed, start_once
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import BatchTrace, LandingRequest
from orchestrations.contracts.runs import START_REASON_LIMIT_CHARACTERS
from orchestrations.errors import shorten
from orchestrations.landing.landing import landing
from orchestrations.names import landing_instance, request_instance

THRESHOLD_TAG = "azureml_modelmonitor_threshold_breached"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MonitorSignal:
    """The breached threshold that a monitor's run reports."""

    run: str
    pipeline: str
    reason: str
    """The tag's text, cut if it is too long."""


def parse_signal(run: str, data: object, pipelines: Iterable[str]) -> MonitorSignal | None:
    """The signal in the data of a run's event; None if it names none of the pipelines. Pure."""
    text = lower_keys(lower_keys(data).get("runtags")).get(THRESHOLD_TAG)
    if not isinstance(text, str) or not text:
        return None
    # Longest name first: `digits-live_drift` belongs to digits-live, not to digits.
    for pipeline in sorted(pipelines, key=len, reverse=True):
        if re.search(rf"(?<![\w-]){re.escape(pipeline)}(?=$|_|[^\w-])", text):
            return MonitorSignal(run, pipeline, shorten(text, START_REASON_LIMIT_CHARACTERS))
    logger.warning("run %s: the signal names no deployed pipeline: %s", run, shorten(text))
    return None


async def start_retraining(
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    signal: MonitorSignal,
    trace: BatchTrace | None = None,
) -> bool:
    """Freeze the zone and train on it, once per monitor run. Return whether this call started it.

    Nothing starts while the zone's landing trains: its model answers the signal. An upload that is
    under way is waited for. Content that was trained on before is trained on again, since the
    reason is a new one (`orchestrations.landing.decisions`).
    """
    zone = await starter.get_status(landing_instance(pipeline.name))
    shown = parsed(zone.custom_status) if is_live(zone) else None
    if shown and shown.get("phase") == "training":
        logger.info("%s: %s is training: %s", signal.run, pipeline.name, signal.reason)
        return False
    request = LandingRequest(
        pipeline=pipeline.name,
        opened_by="request",
        # Where each partition settles by itself, the zone as a whole has nothing to wait for.
        settled=pipeline.source.batch == "partition",
        reason=signal.reason,
        trace=trace,
    )
    instance = request_instance(pipeline.name, f"monitor {signal.run}")
    return await start_once(starter, landing.__name__, instance, request.to_dict())
