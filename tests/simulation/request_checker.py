"""Invariants of requests: drift signals and other systems get the runs that they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from orchestrations.contracts.landing import LandingRequest
from orchestrations.names import (
    REQUEST_PREFIX,
    request_instance,
)
from tests.simulation.evidence import Evidence, input_of
from tests.simulation.fakes.event_grid import signal_text
from tests.simulation.task_hub import HubInstance


def signals_lead_to_runs(evidence: Evidence) -> Iterator[str]:
    """Each drift signal has a run of its own, unless a batch was landing when it came."""
    world = evidence.world
    for number, sent_at in world.topics.signals.items():
        instance = world.hub.instances.get(
            request_instance(world.story.zone, f"monitor monitor-{number}")
        )
        if instance is None:
            # A landing was active; or the pipeline was not deployed.
            continue
        reason = signal_text(number, world.story.zone)
        runs = [run for run, request in evidence.requests.items() if request.reason == reason]
        # A redrive without a file trains on another dataset.
        own = [run for run in runs if evidence.requests[run].redrive is None]
        if len({run.rpartition("-")[0] for run in own}) > 1:
            yield f"signal {number} of {sent_at:.0f} s has the runs {runs}"
        if runs or _outcome(instance) not in ("started", "duplicate"):
            continue
        # A run for the same content that was under way answers the signal: with any of its
        # attempts, of which the landing names the first. If it broke right before, and was not
        # reconciled yet, its dead letter is told, and a redrive answers.
        training = instance.output["run"].rpartition("-")[0]
        attempts = [run for name, run in evidence.runs.items() if name.startswith(f"{training}-")]
        unknown = timedelta(seconds=2 * world.story.reconcile_every)
        if not any(
            run.instance.last_updated_at + (unknown if run.is_broken else timedelta())
            >= instance.created_at
            for run in attempts
        ):
            yield f"signal {number} of {sent_at:.0f} s has no run: {instance.output}"


def requests_lead_to_runs(evidence: Evidence) -> Iterator[str]:
    """A request for known data is answered by its run only if that run did the same."""
    for instance in evidence.landings:
        is_answered = _outcome(instance) in ("started", "duplicate")
        if not instance.id.startswith(REQUEST_PREFIX) or not is_answered:
            continue
        run = evidence.runs.get(instance.output["run"])
        if run is None:
            continue  # every_claim_has_its_run
        given = LandingRequest.from_dict(input_of(instance)).parameters
        has = evidence.requests[run.id].parameters
        if has | given != has:
            yield f"{instance.id} asked for {given}, and has {run.id} with {has}"
        if _outcome(instance) == "started":
            continue
        asked_at = instance.created_at
        if run.state == "cancelled" and run.instance.last_updated_at < asked_at:
            yield f"{instance.id} asked for the content of {run.id}, which was cancelled"
        deployed = {each.digest for each in evidence.releases(asked_at, instance.last_updated_at)}
        if evidence.requests[run.id].configuration not in deployed:
            yield f"{instance.id} asked for new files, and has {run.id} of old ones"


def _outcome(instance: HubInstance) -> str | None:
    output = instance.output
    return output.get("outcome") if isinstance(output, dict) else None


INVARIANTS_OF_REQUESTS = (signals_lead_to_runs, requests_lead_to_runs)
