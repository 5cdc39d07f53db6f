"""Invariants of rollouts: what they do to the traffic, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from handlers.training.champions import choose_champion
from localazure.functions.durable.engine.instance import Status
from orchestrations.contracts.rollouts import EndpointTraffic
from orchestrations.rollout.decisions import main_deployment
from tests.simulation.evidence import Evidence
from tests.simulation.excuses import excused, overlap
from tests.simulation.fakes.serving import GOOD_SECONDS, JOB_INTERVAL_SECONDS, NEVER, Deployment
from tests.simulation.rollout_items import PromoteRollout, RollBackRollout
from tests.simulation.story import HOUR, NoRequests, RemovePipeline
from tests.simulation.subjects import Rollout

ENDS = {
    "finished": "deployed",
    "rolled_back": "rolled_back",
    "superseded": "superseded",
    "failed": "failed",
}
"""State in which a rollout ends → kind of its notification."""
# From the first request that shows the guard broken: the delay of the metrics, a poll, and the
# changes of the endpoint with their retries.
NOTICED_AFTER_SECONDS = 1_500.0
# On a batch endpoint: two of its jobs.
NOTICED_BY_JOBS_AFTER_SECONDS = 3 * JOB_INTERVAL_SECONDS
# A rollout polls every few minutes; while it claims, provisions or tests, every few seconds.
FREE_ACTIVITIES = 800
ACTIVITIES_PER_HOUR = 60
COPY_SECONDS = 300.0
"""How long an activity takes at most, with the retries of its SDK."""


def rollouts_have_a_cause_to_go_back(evidence: Evidence) -> Iterator[str]:
    """A model that serves well is rolled back by people, or because its endpoint was deleted.

    Its files are gone while its pipeline is not deployed: what they say cannot be done, and the
    rollout ends, is told and lets go of the endpoint.
    """
    rejected = {
        question["agreed"]["rollout"]
        for question in evidence.records("approvals/").values()
        if question["answer"] and question["answer"]["verb"] == "reject"
    }
    for rollout in evidence.rollouts.values():
        acts, serving = evidence.world.acts, evidence.world.serving
        people = [*acts.champion_changes, *serving.deleted_by_people]
        is_asked = rollout.id in {*acts.accepted[RollBackRollout], *acts.unanswered}
        is_asked |= _was_within(rollout, people) or rollout.id in rejected
        is_asked |= any(
            overlap(rollout.began, rollout.ended, item.at, item.at + item.seconds)
            for item in evidence.world.story.items
            if isinstance(item, RemovePipeline)
        )
        if rollout.state not in ("rolled_back", "failed") or is_asked:
            continue
        if serving.end_of(rollout.version) == "serves":
            reason = rollout.instance.custom_status["reason"]
            yield f"{rollout.id} is {rollout.state}, and its model serves: {reason}"


def broken_models_leave_the_traffic(evidence: Evidence) -> Iterator[str]:
    """A model that breaks a guard has no live traffic some minutes later."""
    for deployment in evidence.world.serving.every_deployment():
        rollouts = evidence.rollouts_of(deployment.endpoint, deployment.version)
        # A rollout at once, to which a person rolls back, watches nothing.
        promoted = {*evidence.world.acts.accepted[PromoteRollout], *evidence.world.acts.unanswered}
        if any(each.id in promoted or each.at_once or _broke_off(each) for each in rollouts):
            continue
        for began, ended in _bad_spans(evidence, deployment):
            seconds = ended - began - NOTICED_AFTER_SECONDS
            if evidence.world.story.zone == "batch":
                seconds -= NOTICED_BY_JOBS_AFTER_SECONDS
            services = ("azure_ml", "blobs", "task_hub", "metrics")
            if seconds > excused(evidence, began, ended, services) + _calm(evidence, began, ended):
                yield (
                    f"{deployment.name}, which {deployment.end}, had live traffic from "
                    f"{began:.0f} s to {ended:.0f} s"
                )


def _bad_spans(evidence: Evidence, deployment: Deployment) -> Iterator[tuple[float, float]]:
    """When it had live traffic and broke a guard."""
    if deployment.end not in ("fails requests", "is slow", "fails later"):
        return
    bad_from = deployment.ready_at + (GOOD_SECONDS if deployment.end == "fails later" else 0.0)
    for endpoint in evidence.world.serving.every_endpoint():
        if endpoint.name != deployment.endpoint:
            continue
        began: float | None = None
        for change in endpoint.changes:
            # Another deployment can have its name, before it or after it.
            is_there = deployment.made_at <= change.at < deployment.gone_at
            has_traffic = is_there and deployment.name in change.traffic
            if has_traffic and began is None:
                began = max(change.at, bad_from)
            elif not has_traffic and began is not None:
                if change.at > began:
                    yield began, change.at
                began = None
        if began is not None:
            yield began, evidence.world.scheduler.time()


def _calm(evidence: Evidence, began: float, ended: float) -> float:
    """Seconds without a request."""
    return sum(
        overlap(began, ended, item.at, item.at + item.seconds)
        for item in evidence.world.story.items
        if isinstance(item, NoRequests)
    )


def gains(evidence: Evidence, rollout: Rollout) -> Iterator[tuple[float, int]]:
    """When the deployment of a rollout got a greater share of the live traffic during it."""
    name = f"model-{rollout.version}"
    for endpoint in evidence.world.serving.every_endpoint():
        for before, after in pairwise(endpoint.changes):
            more = after.traffic.get(name, 0) > before.traffic.get(name, 0)
            if more and rollout.began <= after.at <= rollout.ended:
                yield after.at, after.traffic[name]


def traffic_is_as_azure_takes_it(evidence: Evidence) -> Iterator[str]:
    """Traffic adds up to 100 and names deployments that serve; what has traffic is not deleted."""
    serving = evidence.world.serving
    # A late second copy names what was deleted meanwhile; Azure refuses it, and nothing changes.
    copied = [at for at, name in evidence.world.host.copied if name == "set_traffic"]
    for at, wrong in [] if serving.deleted_by_people else serving.refused:
        if not any(0 <= at - copy < COPY_SECONDS for copy in copied):
            yield f"{wrong} at {at:.0f} s"


def requests_are_answered(evidence: Evidence) -> Iterator[str]:
    """An endpoint that has served a model serves one at the end."""
    serving = evidence.world.serving
    if not evidence.world.is_idle or serving.deleted_by_people:
        return
    for name, endpoint in serving.endpoints.items():
        live = [each.id for each in evidence.rollouts.values() if each.state == "finished"]
        if live and sum(endpoint.traffic.values()) != 100:
            yield f"{name} has traffic {endpoint.traffic}, and {live} are live"


def deployments_serve_or_are_deleted(evidence: Evidence) -> Iterator[str]:
    """A deployment without traffic costs, and is of no use."""
    serving = evidence.world.serving
    if not evidence.world.is_idle:
        return
    for (endpoint, name), deployment in serving.deployments.items():
        is_there = deployment.gone_at == NEVER
        # Its own rollout broke off, or the one that was to delete it as the previous deployment.
        everyone = evidence.rollouts.values()
        if any(_broke_off(each) and each.ended >= deployment.made_at for each in everyone):
            continue
        if is_there and name not in serving.endpoints[endpoint].traffic:
            yield f"{name} of {endpoint} has no traffic, and nobody deletes it"


def endpoints_are_released(evidence: Evidence) -> Iterator[str]:
    """No rollout holds an endpoint at the end."""
    if not evidence.world.is_idle:
        return
    for name, claim in evidence.records("rollouts/claims/").items():
        if claim["holder"] is not None:
            yield f"{name} is held by {claim['holder']}"


def every_model_is_rolled_out(evidence: Evidence) -> Iterator[str]:
    """Each model that a run registered for an endpoint has its rollout."""
    deploy = evidence.world.pipeline.deploy
    if deploy is None:
        return
    for run in evidence.runs.values():
        if run.state != "succeeded":
            continue
        version = run.instance.custom_status["model"]["version"]
        if not evidence.rollouts_of(deploy.endpoint, version):
            yield f"{run.id} registered version {version}, and nothing rolls it out"


def every_rollout_ends_and_is_told(evidence: Evidence) -> Iterator[str]:
    """Its end is on every channel, and no end that it did not have."""
    for rollout in evidence.rollouts.values():
        if _broke_off(rollout):
            continue
        if rollout.state not in ENDS:
            yield f"{rollout.id} is {rollout.state} at the end"
            continue
        event_grid = ("event_grid",) if rollout.pipeline.notify.event_grid else ()
        for channel in (*event_grid, "webhook/model-watch", "service_bus"):
            kinds = rollout.kinds.get(channel, set())
            if ENDS[rollout.state] not in kinds:
                yield f"{rollout.id} ended as {rollout.state}: {channel} has {sorted(kinds)}"
            if rollout.state == "finished" and kinds & {"rolled_back", "superseded"}:
                yield f"{rollout.id} is live: {channel} has {sorted(kinds)}"


def rollbacks_by_people_hold(evidence: Evidence) -> Iterator[str]:
    """A rollback that was accepted happens."""
    for name, at in evidence.world.acts.accepted[RollBackRollout].items():
        rollout = evidence.rollouts[name]
        if rollout.state == "finished" and rollout.ended - at > NOTICED_AFTER_SECONDS:
            yield f"{name} was to be rolled back at {at:.0f} s, and is live"


def rollouts_cost_little(evidence: Evidence) -> Iterator[str]:
    """Activities per hour."""
    for rollout in evidence.rollouts.values():
        hours = (rollout.ended - rollout.began) / HOUR
        allowed = FREE_ACTIVITIES + hours * ACTIVITIES_PER_HOUR
        if rollout.instance.activities_run > allowed:
            yield f"{rollout.id} ran {rollout.instance.activities_run} activities in {hours:.1f} h"


def the_model_in_service_serves(evidence: Evidence) -> Iterator[str]:
    """The champion that new models are compared with is the one that answers requests."""
    world = evidence.world
    deploy = world.pipeline.deploy
    if deploy is None or not world.is_idle or world.serving.deleted_by_people:
        return
    endpoint = world.serving.endpoints.get(deploy.endpoint)
    champion = choose_champion(evidence.models)
    if endpoint is None or champion is None or any(map(_broke_off, evidence.rollouts.values())):
        return
    serving = main_deployment(EndpointTraffic(traffic=endpoint.traffic))
    if serving is not None and serving != f"model-{champion.version}":
        yield f"version {champion.version} is in service, and {serving} has the traffic"


def _was_within(rollout: Rollout, moments: list[float]) -> bool:
    return any(rollout.began <= at <= rollout.ended for at in moments)


def _broke_off(rollout: Rollout) -> bool:
    """Whether people or an outage ended its instance: the traffic stays as it was."""
    return rollout.instance.status in (Status.FAILED, Status.TERMINATED)


INVARIANTS_OF_ROLLOUTS = (
    rollouts_have_a_cause_to_go_back,
    broken_models_leave_the_traffic,
    traffic_is_as_azure_takes_it,
    requests_are_answered,
    deployments_serve_or_are_deleted,
    endpoints_are_released,
    every_model_is_rolled_out,
    every_rollout_ends_and_is_told,
    rollbacks_by_people_hold,
    rollouts_cost_little,
    the_model_in_service_serves,
)
