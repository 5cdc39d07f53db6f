"""Drift signals and other systems, and the runs that they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from unittest import mock

from handlers.landing import dataset_claims
from handlers.notify.webhooks import parse_secrets, sign
from handlers.operate.reconciliation import runs
from localazure.functions.durable.engine.instance import Status
from orchestrations.contracts.landing import ClaimDataset, LandingRequest
from orchestrations.landing.decisions import LastRound, why_no_further_round
from orchestrations.names import REQUEST_PREFIX, request_instance
from tests.simulation.fakes.event_grid import signal_text
from tests.simulation.feature import LAST_UPLOAD, Drawn, Feature, Mistake, Week, asked
from tests.simulation.people import SECRET
from tests.simulation.planting import Plant, never
from tests.simulation.story import (
    DAY,
    HOUR,
    Act,
    CancelRun,
    Deploy,
    Item,
    Outage,
    RequestRun,
)
from tests.simulation.subjects import input_of
from tests.simulation.weeks import FIRST, UPLOAD, UPLOADED_AT, first_job, quiet_week

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence
    from tests.simulation.task_hub import HubInstance


class DriftSignal(Act):
    """A monitor's run reports that the model's data drifts. A number repeats an earlier event."""

    number: int


def _outcome(instance: HubInstance) -> str | None:
    output = instance.output
    return output.get("outcome") if isinstance(output, dict) else None


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


def every_request_ends_or_is_alerted(evidence: Evidence) -> Iterator[str]:
    """A request over the API whose landing broke for good is known to operators, once."""
    for each in evidence.landings:
        if not each.id.startswith(REQUEST_PREFIX):
            continue
        alerts = sum(alert.message_id == f"request-failed:{each.id}" for alert in evidence.alerts)
        is_broken = each.status in (Status.FAILED, Status.TERMINATED)
        if alerts != is_broken:
            yield f"{each.id} is {each.status}, and operators were alerted {alerts} times"


def _drift_signals(chance: random.Random, week: Week) -> Iterator[Item]:
    for _ in range(chance.choice([1, 2, 4])):
        at = chance.choice([week.moment(chance), chance.uniform(DAY, LAST_UPLOAD)])
        yield DriftSignal(at=round(at, 3), number=chance.randint(1, 2))


def _requests_again(chance: random.Random, week: Week) -> Iterator[Item]:
    at = chance.uniform(2 * DAY, LAST_UPLOAD)
    cancelled = CancelRun(at=week.moment(chance))
    yield from chance.choice([[cancelled], [Deploy(at=at - 60.0, floor=0.7)], []])
    yield RequestRun(at=round(at, 3), key="request-again", seed=chance.choice([0, 0, 1]))


def _send_drift_signal(acts: Acts, item: DriftSignal) -> None:
    acts.world.topics.drift_signal(item.number, acts.world.story.zone)


async def _request_run(acts: Acts, item: RequestRun) -> None:
    pipeline = acts.world.pipeline
    parameters = {"seed": item.seed} if "seed" in pipeline.parameters else {}
    body = json.dumps({"receiver": "caller", "parameters": parameters}).encode()
    # The library that verifies it reads the wall clock.
    now = datetime.now(UTC)
    headers = sign(parse_secrets(SECRET, setting=""), message_id=item.key, at=now, body=body)
    answer = await acts.post("start_run", body, headers=headers, name=pipeline.name)
    # 404: the pipeline is not deployed now.
    assert answer.status in (202, 404), answer


def _asked_otherwise(
    change: Callable[[ClaimDataset, LastRound], tuple[ClaimDataset, LastRound]],
) -> Plant:
    """A claim of known content is judged by something else."""

    def judge(asked: ClaimDataset, last: LastRound) -> str | None:
        return why_no_further_round(*change(asked, last))

    return lambda: mock.patch.object(dataset_claims, "why_no_further_round", judge)


def _without_reason(asked: ClaimDataset) -> ClaimDataset:
    request = asked.request.model_copy(update={"reason": None})
    return asked.model_copy(update={"request": request})


FEATURE = Feature(
    drawn={
        "drift signals": Drawn(weight=0.15, items=_drift_signals),
        "requests for known data": Drawn(weight=0.1, items=_requests_again),
    },
    acts={DriftSignal: _send_drift_signal, RequestRun: asked(_request_run)},
    invariants=(signals_lead_to_runs, requests_lead_to_runs, every_request_ends_or_is_alerted),
    mistakes={
        "drift signals for known data are duplicates": Mistake(
            plant=_asked_otherwise(lambda asked, last: (_without_reason(asked), last)),
            found_by=signals_lead_to_runs,
            items=[UPLOAD, DriftSignal(at=DAY, number=1)],
        ),
        "requests with new code are duplicates": Mistake(
            plant=_asked_otherwise(lambda asked, last: (asked, replace(last, configuration=None))),
            found_by=requests_lead_to_runs,
            items=[UPLOAD, Deploy(at=DAY - HOUR, floor=0.7), RequestRun(at=DAY, key="again")],
        ),
        "requests with other parameters are duplicates": Mistake(
            plant=_asked_otherwise(
                lambda asked, last: (asked, replace(last, parameters=asked.request.parameters))
            ),
            found_by=requests_lead_to_runs,
            items=[UPLOAD, RequestRun(at=DAY, key="again", seed=1)],
        ),
        "the content of cancelled runs is a duplicate": Mistake(
            plant=_asked_otherwise(lambda asked, last: (asked, replace(last, state="failed"))),
            found_by=requests_lead_to_runs,
            items=[
                UPLOAD,
                first_job("never ends"),
                CancelRun(at=2 * HOUR),
                RequestRun(at=DAY, key="again"),
            ],
        ),
        "broken requests are not reconciled": Mistake(
            plant=lambda: mock.patch.object(runs, "close_request", never),
            found_by=every_request_ends_or_is_alerted,
            items=[
                UPLOAD,
                RequestRun(at=UPLOADED_AT + 10, key="a"),
                Outage(service="blobs", at=UPLOADED_AT + 10.1, seconds=2 * HOUR),
            ],
        ),
    },
    kept={
        "a drift signal without new data": quiet_week(
            FIRST, *(DriftSignal(at=DAY + n * HOUR, number=1) for n in range(2))
        ),
    },
)
