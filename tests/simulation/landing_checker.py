"""Invariants of landings that lead to no run: operators are told, and told once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import RecordBatch
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.names import (
    REQUEST_PREFIX,
    landing_instance,
    landing_of,
    pipeline_of_landing,
)
from tests.simulation.evidence import Evidence
from tests.simulation.excuses import away, excused, sent_later
from tests.simulation.scheduler import START
from tests.simulation.story import (
    HOUR,
    CallFault,
    Refuse,
    Release,
    ReleaseAfter,
    RemovePipeline,
    Terminate,
    TerminateAfter,
)
from tests.simulation.world import Failure

NEVER = "9999"

LANDING_FAILED = "landing-failed"
# From the end of the round that found it: its alert is on its way.
TOLD_AFTER_SECONDS = 600.0
# A released batch: its landing may wait for a run of the zone.
LANDED_AFTER_SECONDS = 8 * HOUR
FREEZING_SECONDS = 60.0
SERVICES_OF_ALERTS = ("blobs", "service_bus", "task_hub")


def failing_landings_are_told(evidence: Evidence) -> Iterator[str]:
    """Operators know of a landing that failed after one round of reconciliation."""
    alerts = _alerts(evidence)
    for number, failure in enumerate(evidence.world.failures):
        if failure.landing.startswith(REQUEST_PREFIX):
            continue  # every_request_ends_or_is_alerted
        reconciled_at = _reconciled_at(evidence, failure.at)
        if reconciled_at is None:
            continue  # the week is over before
        due = reconciled_at + TOLD_AFTER_SECONDS
        began = _cause_began(evidence, number)
        told = [at for at, landing in alerts if landing == failure.landing and at >= began]
        late = min(told, default=evidence.world.scheduler.time()) - due
        if late > excused(evidence, failure.at, due + max(late, 0.0), SERVICES_OF_ALERTS):
            yield f"{failure.landing} failed at {failure.at:.0f} s: {failure.error[:200]}"


def failing_landings_are_shown(evidence: Evidence) -> Iterator[str]:
    """After one round of reconciliation, the API shows that the pipeline needs a person."""
    world = evidence.world
    for failure in world.failures:
        reconciled_at = _reconciled_at(evidence, failure.at)
        if failure.landing.startswith(REQUEST_PREFIX) or reconciled_at is None:
            continue
        again = (at for at in _landed(evidence, failure.landing) if at > failure.at)
        until = min(again, default=world.scheduler.time())
        for at, states in world.acts.looked:
            state = states.get(pipeline_of_landing(failure.landing))
            if reconciled_at <= at < until and state not in ("needs-a-human", None):
                yield f"{failure.landing} failed at {failure.at:.0f} s: {state} at {at:.0f} s"


def one_cause_has_one_alert(evidence: Evidence) -> Iterator[str]:
    """A landing that fails again and again is one alert until it lands."""
    failures, story = evidence.world.failures, evidence.world.story
    for landing in {each.landing for each in failures}:
        alerts = [at for at, about in _alerts(evidence) if about == landing]
        causes = {
            (_cause_began(evidence, number), _kind(each))
            for number, each in enumerate(failures)
            if each.landing == landing
        }
        # That people terminated it is a cause, too.
        terminated = sum(isinstance(each, Terminate | TerminateAfter) for each in story.items)
        if len(alerts) > len(causes) + terminated:
            yield f"{landing} has {len(alerts)} alerts for {len(causes)} causes"


def one_hold_has_one_alert(evidence: Evidence) -> Iterator[str]:
    """Batches of a zone that are held one after another are one alert for each reason."""
    holds, held = Counter[str](), set[str]()
    for batch in evidence.batches:
        zone = landing_instance(batch.result.pipeline, batch.dataset.partition)
        is_held = batch.result.outcome == "held"
        holds[zone] += is_held and zone not in held
        (held.add if is_held else held.discard)(zone)
    for run in evidence.runs.values():
        request = evidence.requests[run.id]
        zone = landing_instance(request.pipeline.name, request.dataset.partition)
        holds[zone] += run.state == "held"
    released = sum(isinstance(each, Release | ReleaseAfter) for each in evidence.world.story.items)
    alerts = Counter((each["landing"], each["reason"]) for each in _held_alerts(evidence))
    for (zone, reason), count in alerts.items():
        if not zone.startswith(REQUEST_PREFIX) and count > holds[zone] + released:
            yield f"{zone} has {count} alerts of {reason}, and was held {holds[zone]} times"


def data_is_trained_on_by_its_rules(evidence: Evidence) -> Iterator[str]:
    """A batch that started a run keeps `checks`, and has changed enough or waited long enough."""
    trained: dict[str | None, list[tuple[str, list[ManifestLine]]]] = defaultdict(list)
    for batch, since in _batches_with_waits(evidence):
        version, outcome = batch.dataset.version, batch.result.outcome
        known, after = trained[batch.dataset.partition], evidence.manifest(version)
        frozen_at = batch.dataset.frozen_at.isoformat()
        # Training that a check has ended by then does not count.
        counted = [lines for at, lines in known if at > frozen_at]
        before = counted[-1] if counted else None
        if outcome in ("started", "duplicate") and after:
            run = evidence.runs.get(batch.result.run or "")
            known.append((evidence.ended_by_check.get(run.version if run else "", NEVER), after))
        request = evidence.requests.get(batch.result.run or "")
        if outcome != "started" or request is None or not (before and after):
            continue
        is_request = landing_of(batch.batch).startswith(REQUEST_PREFIX)
        # A request that names parameters is for that training, also with the pipeline's own values.
        if request.reason or (is_request and request.parameters):
            continue
        if evidence.records(f"released/{batch.result.pipeline}/{version}"):
            continue
        waited = (batch.dataset.frozen_at - since).total_seconds()
        for broken in _broken_rules(request.pipeline, before, after, waited):
            yield f"{batch.result.run} was started, and {broken}"


def forgotten_contents_are_found_and_trained_on_no_more(evidence: Evidence) -> Iterator[str]:
    """No manifest that was frozen later has one; the request lists all that have one."""
    listed = {
        name.split("/")[-1] for name in evidence.records("forgotten/") if "/versions/" in name
    }
    for version, lines in evidence.manifests.items():
        has = {(line.md5, line.size) for line in lines} & evidence.forgotten.keys()
        if has and f"{version}.json" not in listed:
            yield f"{version} has {has}, and is not among the versions that have forgotten contents"
    for name, redriven in evidence.records("runs/").items():
        if not name.endswith("/redrive.json"):
            continue
        at = (datetime.fromisoformat(redriven["at"]) - START).total_seconds()
        for line in evidence.manifest(redriven["request"]["dataset"]["version"]):
            since = evidence.forgotten.get((line.md5, line.size), at)
            # The request has searched the manifests, too, some time later.
            if at - since > HOUR + excused(evidence, since, at):
                yield f"{name} was written at {at:.0f} s with the forgotten {line.path}"
    for batch in evidence.batches:
        at = (batch.dataset.frozen_at - START).total_seconds()
        for line in evidence.manifest(batch.dataset.version):
            if evidence.forgotten.get((line.md5, line.size), at) < at:
                yield f"{batch.batch} was frozen at {at:.0f} s with the forgotten {line.path}"


def training_waits_for_its_checks(evidence: Evidence) -> Iterator[str]:
    """What a round of training has to pass, it has passed; only what is released has nothing to."""
    lives = evidence.world.cluster.lives.values()
    passed = {(life.run.rpartition("-")[0], life.stage) for life in lives if life.passed}
    for life in lives:
        training, run = life.run.rpartition("-")[0], evidence.runs.get(life.run)
        claim = None if run is None else evidence.claimed.get(run.version)
        if life.stage != "training" or claim is None:
            continue
        redrive = evidence.requests[life.run].redrive
        if redrive is not None and redrive.files_left_out:
            continue  # a person chose from data that was checked, which makes another training
        missing = {each for each in claim.checks if (training, each) not in passed}
        if "landfall.champion" not in evidence.world.workspace.jobs[life.name].tags:
            missing.discard("champion-check")
        if "data-check" in claim.pipeline.jobs and "data-check" not in claim.checks:
            name = f"released/{claim.pipeline.name}/{claim.dataset.version}"
            missing |= set() if evidence.records(name) else {"data-check"}
        if missing:
            yield f"job {life.name} was submitted, and {sorted(missing)} had not passed"


def failed_checks_hold_and_alert(evidence: Evidence) -> Iterator[str]:
    """A run ends as held exactly if its data check failed, and operators are told."""
    alerted: dict[str, float] = {}
    for alert in evidence.alerts:
        if alert.subject == "batch-held":
            at = (alert.enqueued_at - START).total_seconds()
            alerted.setdefault(evidence.data_of(alert)["landing"], at)
    failed = {life.run for life in evidence.world.cluster.lives.values() if life.passed is False}
    for run in evidence.runs.values():
        request = evidence.requests[run.id]
        landing = landing_instance(request.pipeline.name, request.dataset.partition)
        ended = (run.instance.last_updated_at - START).total_seconds()
        told = alerted.get(landing, evidence.world.scheduler.time())
        due = HOUR + sent_later(evidence, ended, told)
        is_late = told - ended > due + excused(evidence, ended, told, SERVICES_OF_ALERTS)
        if run.state == "held" and (run.id not in failed or is_late):
            yield f"{run.id} is held: failed {run.id in failed}, alert at {told:.0f} s"
        if run.state == "succeeded" and run.id in failed:
            yield f"{run.id} has trained, and a check had ended it"


def nothing_waits_longer_than_its_age(evidence: Evidence) -> Iterator[str]:
    """A batch that has waited for more data for the maximum age is trained on."""
    # A person has to decide, or to complete the data.
    alerted = _landings_told(evidence, "batch-held") | _landings_told(evidence, "landing-overdue")
    for batch, since in _batches_with_waits(evidence):
        request = evidence.requests.get(batch.result.run or "")
        landing = landing_instance(batch.result.pipeline, batch.dataset.partition)
        if batch.result.outcome != "started" or request is None or landing in alerted:
            continue
        age = request.pipeline.settle.maximum_age_seconds
        if age is None or since == batch.dataset.frozen_at:
            continue
        releases = evidence.world.releases
        deployed_at = next(it.at for it in releases if it.digest == request.configuration)
        due = (max(since, deployed_at) - START).total_seconds() + age
        due += 2 * evidence.world.story.reconcile_every + _shut_seconds(evidence)
        at = (batch.dataset.frozen_at - START).total_seconds()
        if at - due > excused(evidence, due - age, max(at, due), SERVICES_OF_ALERTS):
            yield f"{batch.batch} was frozen at {at:.0f} s, and had waited since {since}"


def _shut_seconds(evidence: Evidence) -> float:
    """For how long nothing lands, since the pipeline or its container is not there."""
    items = evidence.world.story.items
    return sum(item.seconds for item in items if isinstance(item, RemovePipeline | Refuse))


def _batches_with_waits(evidence: Evidence) -> Iterator[tuple[RecordBatch, datetime]]:
    """Each batch, and since when batches of its zone have waited for more data."""
    since: dict[str | None, datetime] = {}
    told = _landings_told(evidence, "batch-held")
    # A request has one batch: that one waits for people.
    for_people = {each for each in told if each.startswith(REQUEST_PREFIX)}
    for batch in evidence.batches:
        zone, frozen_at = batch.dataset.partition, batch.dataset.frozen_at
        yield batch, since.get(zone, frozen_at)
        if batch.result.outcome == "held" and landing_of(batch.batch) not in for_people:
            since.setdefault(zone, frozen_at)
        else:
            since.pop(zone, None)


def _broken_rules(
    pipeline: Pipeline, before: list[ManifestLine], after: list[ManifestLine], waited: float
) -> Iterator[str]:
    old, new = ({line.path: (line.size, line.md5) for line in each} for each in (before, after))
    if old == new:
        return
    checks, settle = pipeline.checks, pipeline.settle
    changed = sum(path in new and new[path] != content for path, content in old.items())
    if checks is not None and changed > (checks.changed_at_most or 1.0) * len(old):
        yield f"{changed} of {len(old)} files have changed"
    duplicates = len(new) - len(set(new.values()))
    if checks is not None and duplicates > (checks.duplicates_at_most or 1.0) * len(new):
        yield f"{duplicates} of {len(new)} files are duplicates"
    is_old = settle.maximum_age_seconds is not None and waited >= settle.maximum_age_seconds
    differing = len([path for path in old.keys() | new.keys() if old.get(path) != new.get(path)])
    needed = 0 if settle.minimum_change is None else settle.minimum_change.files or 0
    if differing < needed and not is_old:  # a moved file differs at two paths
        yield f"{differing} files differ, after {waited:.0f} s"


def _landings_told(evidence: Evidence, kind: str) -> set[str]:
    """The landings about which operators have an alert of a kind."""
    return {evidence.data_of(it)["landing"] for it in evidence.alerts if it.subject == kind}


def _held_alerts(evidence: Evidence) -> list[Any]:
    return [evidence.data_of(each) for each in evidence.alerts if each.subject == "batch-held"]


def _alerts(evidence: Evidence) -> list[tuple[float, str]]:
    return [
        ((each.enqueued_at - START).total_seconds(), evidence.data_of(each)["landing"])
        for each in evidence.alerts
        if each.subject == LANDING_FAILED
    ]


def _kind(failure: Failure) -> str:
    """The cause of a failure, as far as its text names a type of error."""
    known = ("TimeoutError", "no result within", "HttpResponseError", "ServiceResponseError")
    return next((each for each in known if each in failure.error), failure.error)


def _cause_began(evidence: Evidence, number: int) -> float:
    """When the landing first failed since it last landed."""
    failure = evidence.world.failures[number]
    landed = (at for at in _landed(evidence, failure.landing) if at < failure.at)
    since = max(landed, default=0.0)
    return min(
        each.at
        for each in evidence.world.failures
        if each.landing == failure.landing and each.at >= since
    )


def _landed(evidence: Evidence, landing: str) -> Iterator[float]:
    """When the landing ended well, or its batch was frozen: what failed before is over then."""
    yield from (at for at, ended in evidence.world.landed if ended == landing)
    for batch in evidence.batches_of_all:
        if landing_instance(batch.result.pipeline, batch.dataset.partition) == landing:
            yield (batch.dataset.frozen_at - START).total_seconds()


def _reconciled_at(evidence: Evidence, at: float) -> float | None:
    """When what happened must be known: at the end of one whole round of reconciliation.

    A round that a service does not let come through is none, and a fault may cost another.
    """
    faults = (isinstance(each, CallFault) for each in evidence.world.story.items)
    needed = 2 if any(faults) else 1
    for began, ended in evidence.world.host.rounds:
        if began is None or ended is None or began <= at:
            continue
        needed -= not away(evidence, began, ended, SERVICES_OF_ALERTS)
        if not needed:
            return ended
    return None


def what_is_released_is_landed_again(evidence: Evidence) -> Iterator[str]:
    """A release opens a landing: the next round of reconciliation makes up for one that did not."""
    overdue = _landings_told(evidence, "landing-overdue")
    due = evidence.world.story.reconcile_every + LANDED_AFTER_SECONDS + _shut_seconds(evidence)
    pipeline = evidence.world.pipeline.name
    for version in {it.dataset.version for it in evidence.batches}:
        released_at = evidence.written_at(f"released/{pipeline}/{version}.json")
        if released_at is None:
            continue
        # The zones or partitions that have had this content, of which one was held.
        had = {it.dataset.partition for it in evidence.batches if it.dataset.version == version}
        if any(landing_instance(pipeline, each) in overdue for each in had):
            continue  # operators know that its data is not whole
        frozen = [
            (it, (it.dataset.frozen_at - START).total_seconds())
            for it in evidence.batches
            if it.dataset.partition in had
        ]
        # What is being frozen at that moment, and was not held as this version, saw the release.
        later = (
            at
            for it, at in frozen
            if at > released_at
            or (
                at > released_at - FREEZING_SECONDS
                and (it.dataset.version, it.result.outcome) != (version, "held")
            )
        )
        until = max(released_at, next(later, evidence.world.scheduler.time()))
        if until - released_at > due + excused(evidence, released_at, until):
            yield f"{version} was released at {released_at:.0f} s, and landed at {until:.0f} s"


INVARIANTS_OF_LANDINGS = (
    failing_landings_are_told,
    failing_landings_are_shown,
    one_cause_has_one_alert,
    one_hold_has_one_alert,
    data_is_trained_on_by_its_rules,
    forgotten_contents_are_found_and_trained_on_no_more,
    training_waits_for_its_checks,
    failed_checks_hold_and_alert,
    nothing_waits_longer_than_its_age,
    what_is_released_is_landed_again,
)
