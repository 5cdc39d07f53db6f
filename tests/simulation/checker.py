"""Invariants of every simulated week, each a function that yields violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from localazure.functions.durable.engine.instance import Status
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import RecordBatch
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, notification_of
from orchestrations.contracts.runs import STATUS_LIMIT_BYTES
from orchestrations.names import REQUEST_PREFIX, landing_instance
from tests.simulation.api_checker import INVARIANTS_OF_THE_API
from tests.simulation.approval_checker import INVARIANTS_OF_APPROVALS
from tests.simulation.capacity_checker import INVARIANTS_OF_CAPACITY
from tests.simulation.evidence import Evidence, Run, training_of
from tests.simulation.input_checker import INVARIANTS_OF_INPUTS
from tests.simulation.landing_checker import INVARIANTS_OF_LANDINGS
from tests.simulation.outcome_checker import INVARIANTS_OF_OUTCOMES, SERVICE_ERRORS
from tests.simulation.people import MORE_ATTEMPTS
from tests.simulation.promotion_checker import INVARIANTS_OF_PROMOTIONS
from tests.simulation.releases import Release
from tests.simulation.reproduction_checker import INVARIANTS_OF_REPRODUCTIONS
from tests.simulation.request_checker import INVARIANTS_OF_REQUESTS
from tests.simulation.rollout_checker import INVARIANTS_OF_ROLLOUTS
from tests.simulation.scheduler import START
from tests.simulation.story import (
    DAY,
    HOUR,
    Crash,
    LoseEvent,
    RemovePipeline,
    Terminate,
    TerminateAfter,
)
from tests.simulation.world import CALL_LIMIT, Snapshot, World

Invariant = Callable[[Evidence], Iterator[str]]

HISTORY_LIMIT_EVENTS = 1_500
# How long an event may lie in its queue, behind an outage, before it is decided on.
EVENT_DELAY_SECONDS = 12 * HOUR
# A zone is listed without any event once a day; reconciliation, and a run, come on top.
NOTICED_AFTER_SECONDS = 2.5 * DAY


def check(world: World) -> list[str]:
    """Everything that is wrong, as `invariant: what`."""
    evidence = Evidence(world)
    return [
        f"{invariant.__name__}: {problem}"
        for invariant in INVARIANTS
        for problem in invariant(evidence)
    ]


def only_services_fail(evidence: Evidence) -> Iterator[str]:
    """Every exception is explained by a fault of a service."""
    yield from evidence.world.host.mistakes
    yield from (str(fault) for fault in evidence.world.scheduler.faults)


def nothing_waits_for_ever(evidence: Evidence) -> Iterator[str]:
    """Days after the last fault everything is at its end."""
    if not evidence.world.is_idle:
        yield from evidence.world.what_goes_on()


def cost_is_bounded(evidence: Evidence) -> Iterator[str]:
    """Calls of services, history events, and attempts."""
    world = evidence.world
    if world.network.total_calls > CALL_LIMIT:
        yield f"{world.network.total_calls} calls: {world.network.operations.most_common(5)}"
    for instance in world.hub.instances.values():
        if instance.longest_history > HISTORY_LIMIT_EVENTS:
            yield f"{instance.id} has {instance.longest_history} history events"
    lives = [life for life in world.cluster.lives.values() if life.name == life.run]
    attempts = Counter(life.name.rpartition("-")[0] for life in lives)
    more = sum(
        MORE_ATTEMPTS if change == "attempts" else 1 for change in world.acts.changed.values()
    )
    attempts_of_files = max(each.pipeline.retry.attempts for each in world.releases)
    allowed = attempts_of_files + world.acts.redrives + more
    for version, count in attempts.items():
        if count > allowed:
            yield f"{version} was trained {count} times, {allowed} are allowed"


def custom_status_is_small(evidence: Evidence) -> Iterator[str]:
    """At most 4 KB of UTF-16."""
    for instance in evidence.world.hub.instances.values():
        size = max((2 * len(status) for status in instance.custom_statuses), default=0)
        if size > STATUS_LIMIT_BYTES:
            yield f"{instance.id}: {size} bytes"


def instances_break_for_a_reason(evidence: Evidence) -> Iterator[str]:
    """An instance fails because a service was out for longer than its retries, or by people."""
    terminations = any(
        isinstance(item, Terminate | TerminateAfter) for item in evidence.world.story.items
    )
    for instance in evidence.world.hub.instances.values():
        if instance.status is Status.TERMINATED and not terminations:
            yield f"{instance.id} was terminated by nobody"
        if instance.status is Status.FAILED and not any(
            name in (instance.output_json or "") for name in SERVICE_ERRORS
        ):
            yield f"{instance.id}: {instance.output}"


def every_claim_has_its_run(evidence: Evidence) -> Iterator[str]:
    """Claimed datasets are trained on."""
    for version, claim in evidence.claims.items():
        if claim["run"] not in evidence.runs:
            yield f"{version} was claimed for {claim['run']}, which never came to be"


def every_run_ends_in_one_state(evidence: Evidence) -> Iterator[str]:
    """A run's last state is an end, and an attempt follows exactly one that asks for it."""
    for run in evidence.runs.values():
        if run.instance.is_live:
            continue  # nothing_waits_for_ever
        if run.state not in TERMINAL_RUN_STATES and not run.is_broken:
            yield f"{run.id} ended as {run.state}"
        # Without some files it is an attempt at another dataset.
        next_id = evidence.redriven.get(run.id, _attempt(run, run.attempt + 1))
        following = evidence.runs.get(next_id)
        # In a long outage Service Bus dead-letters the message that starts the next attempt.
        is_waiting_for_a_person = following is None and next_id in evidence.rejected
        if run.state == "retrying" and following is None and not is_waiting_for_a_person:
            yield f"{run.id} is retrying, and no attempt follows"
        gave_up = run.state in ("rejected", "failed") or _broke_early(run)
        if following is not None and run.state != "retrying" and not gave_up:
            yield f"{run.id} ended as {run.state}, and {following.id} follows"
        is_told = evidence.letters[run.id] or is_waiting_for_a_person
        if gave_up and following is None and not is_told:
            yield f"{run.id} gave up ({run.state}), and is not dead-lettered"
        if gave_up and evidence.letters[run.id] > 1:
            yield f"{run.id} is dead-lettered {evidence.letters[run.id]} times"
        earlier = _attempt(run, run.attempt - 1)
        was_there = earlier in evidence.runs or earlier in evidence.rejected
        if run.attempt > 1 and run.id not in evidence.redriven.values() and not was_there:
            yield f"{run.id} has no attempt before it"


def _attempt(run: Run, number: int) -> str:
    return f"{run.id.rpartition('-')[0]}-{number}"


def _broke_early(run: Run) -> bool:
    return run.is_broken and run.state not in TERMINAL_RUN_STATES


def every_end_is_notified_once(evidence: Evidence) -> Iterator[str]:
    """The notification is on every channel, and there is no other final one."""
    ends = {notification_of(state) for state in TERMINAL_RUN_STATES}
    for run in evidence.runs.values():
        if run.instance.is_live:
            continue
        state: Any = "failed" if _broke_early(run) else run.state
        if state not in TERMINAL_RUN_STATES:
            continue
        wanted = notification_of(state)
        caller = ("webhook/caller",) if evidence.requests[run.id].receiver else ()
        event_grid = ("event_grid",) if evidence.requests[run.id].pipeline.notify.event_grid else ()
        for channel in (*event_grid, "webhook/model-watch", "service_bus", *caller):
            kinds = run.kinds.get(channel, set())
            if wanted not in kinds and not _was_undeliverable(evidence, f"{run.id}:{wanted}"):
                yield f"{run.id} ended as {state}: {channel} has {sorted(kinds)}"
            for other in (kinds & ends) - {wanted}:
                yield f"{run.id} ended as {state}: {channel} has {other}, too"
        if not caller and run.kinds.get("webhook/caller"):
            yield f"{run.id}: a receiver that nobody asked for is told of it"


def every_end_is_in_the_list_of_runs(evidence: Evidence) -> Iterator[str]:
    """A run is listed once, under the state of its end, and its timeline ends with it."""
    for run in evidence.runs.values():
        if run.instance.is_live:
            continue
        state = "failed" if _broke_early(run) else run.state
        if evidence.run_index[run.id] != [state]:
            yield f"{run.id} ended as {state}: the index has {evidence.run_index[run.id]}"
        steps = evidence.run_steps.get(run.id, [])
        if steps[-1:] != [state]:
            yield f"{run.id} ended as {state}: its record has {steps}"


def _was_undeliverable(evidence: Evidence, notification: str) -> bool:
    return any(letter.startswith(notification) for letter in evidence.letters)


def every_request_ends_or_is_alerted(evidence: Evidence) -> Iterator[str]:
    """A request over the API whose landing broke for good is known to operators, once."""
    for each in evidence.landings:
        if not each.id.startswith(REQUEST_PREFIX):
            continue
        alerts = sum(alert.message_id == f"request-failed:{each.id}" for alert in evidence.alerts)
        is_broken = each.status in (Status.FAILED, Status.TERMINATED)
        if alerts != is_broken:
            yield f"{each.id} is {each.status}, and operators were alerted {alerts} times"


def no_effect_happens_twice(evidence: Evidence) -> Iterator[str]:
    """One batch and one model per round of a dataset version, one alert per id."""
    started = Counter(
        batch.result.run for batch in evidence.batches if batch.result.outcome == "started"
    )
    yield from (f"{run} was started by {n} batches" for run, n in started.items() if n > 1)
    models = Counter(map(training_of, evidence.models))
    yield from (f"{training} has {n} models" for training, n in models.items() if n > 1)
    for name in {model.name for model in evidence.models}:
        versions = sorted(int(each.version) for each in evidence.models if each.name == name)
        if versions != list(range(1, len(versions) + 1)):
            yield f"versions of model {name} are counted {versions}"
    alerts = Counter(message.message_id for message in evidence.alerts)
    for message_id, count in alerts.items():
        if count > 1 and message_id.rpartition(":")[0] in evidence.runs:
            yield f"alert {message_id} was published {count} times"


def models_are_of_runs_that_succeeded(evidence: Evidence) -> Iterator[str]:
    """Each successful run has a model; a cancelled run has none."""
    trained = set(map(training_of, evidence.models))
    for run in evidence.runs.values():
        if run.state == "succeeded" and run.version not in trained:
            yield f"{run.id} succeeded without a model"
    for model in evidence.models:
        run = evidence.runs.get(model.tags["landfall.run"])
        if run is None or run.state == "cancelled":
            yield f"model {model.version} is of {run and run.id}, which was cancelled"


def no_job_goes_on_alone(evidence: Evidence) -> Iterator[str]:
    """A job ends before its run, or its cancellation was requested."""
    for life in evidence.world.cluster.lives.values():
        run = evidence.runs.get(life.run)
        if run is None:
            yield f"job {life.name} has no run"
            continue
        if life.cancelled_at is not None or run.is_broken or run.instance.is_live:
            continue
        run_ended = (run.instance.last_updated_at - START).total_seconds()
        if not life.has_ended or life.states[-1][0] > run_ended:
            yield f"job {life.name} went on after its run had ended as {run.state}"


def what_is_trained_on_was_whole(evidence: Evidence) -> Iterator[str]:
    """A batch was quiet, marked, at its maximum wait, or requested when it was frozen."""
    for batch in evidence.batches:
        newest, frozen_at = batch.dataset.newest, batch.dataset.frozen_at
        if newest is None or batch.opened_by == "request":
            continue
        # The rules of any release that was in force while the batch settled.
        if not any(
            _is_whole(batch, each.pipeline)
            for each in evidence.releases(batch.opened_at, frozen_at)
        ):
            yield f"batch {batch.batch} was not whole at {frozen_at}: newest {newest}"


def _is_whole(batch: RecordBatch, pipeline: Pipeline) -> bool:
    newest, frozen_at, settle = batch.dataset.newest, batch.dataset.frozen_at, pipeline.settle
    assert newest is not None, "an empty batch is not asked about"
    if pipeline.source.marker is not None:
        return batch.marker_at is not None and batch.marker_at >= newest
    is_quiet = newest + timedelta(seconds=settle.quiet_seconds) <= frozen_at
    deadline = batch.opened_at + timedelta(seconds=settle.maximum_wait_seconds)
    return is_quiet or deadline <= frozen_at


def every_whole_batch_is_accounted_for(evidence: Evidence) -> Iterator[str]:
    """Data that lay still for long was frozen, or operators were alerted to its missing marker."""
    world = evidence.world
    recorded = {batch.dataset.version for batch in evidence.batches}
    end = world.scheduler.time()
    loses_events = any(isinstance(item, LoseEvent) for item in world.story.items)
    for number, snapshot in enumerate(world.zone):
        following = world.zone[number + 1].at if number + 1 < len(world.zone) else end
        for release, since, until in _under_releases(evidence, snapshot.at, following):
            if until - since < NOTICED_AFTER_SECONDS:
                continue
            pipeline = release.pipeline
            batches = evidence.content(pipeline, snapshot.blobs)
            # Only events lead to older partitions: reconciliation does not list them.
            # A release has no event.
            is_told = since == snapshot.at and not loses_events
            watched = list(batches) if is_told else sorted(batches, key=str)[-3:]
            for partition in watched:
                blobs = batches[partition]
                if evidence.versions(pipeline, blobs) & recorded:
                    continue
                if _is_overdue(evidence, pipeline, blobs[0].name, snapshot):
                    continue
                yield (
                    f"what {partition or 'the zone'} held from {since:.0f} s to {until:.0f} s was "
                    f"never frozen: {[blob.name for blob in blobs]}"
                )


def _under_releases(
    evidence: Evidence, since: float, until: float
) -> Iterator[tuple[Release, float, float]]:
    """The parts of a span of time, each with the release that was in force."""
    releases = evidence.world.releases
    starts = [(each.at - START).total_seconds() for each in releases]
    for release, began, ended in zip(releases, starts, [*starts[1:], until], strict=True):
        if began < until and ended > since:
            yield release, max(began, since), min(ended, until)


def _is_overdue(evidence: Evidence, pipeline: Pipeline, blob: str, snapshot: Snapshot) -> bool:
    """Whether operators were alerted that the blob's batch lacks a newer marker than this one."""
    source = pipeline.source
    is_partitioned = source.batch == "partition"
    partition = source.partition_of(blob.removeprefix(source.prefix)) if is_partitioned else None
    path = source.marker_path(partition)
    if path is None:
        return False
    marker = snapshot.blobs.get(source.prefix + path)
    since = None if marker is None else marker.last_modified.isoformat()
    landing = landing_instance(pipeline.name, None if partition is None else partition.key)
    told = [evidence.data_of(each) for each in evidence.alerts if each.subject == "landing-overdue"]
    return any((each["landing"], each["marker_at"]) == (landing, since) for each in told)


def every_event_is_decided(evidence: Evidence) -> Iterator[str]:
    """An event that reached its queue is in the event log, if a pipeline watched its zone.

    Unless it is about a blob whose name was erased there, or the host died while the log of that
    hour was written again without the name.
    """
    forgotten, topics = evidence.world.acts.forgotten, evidence.world.topics
    may_be_cut = any(isinstance(each, Crash) for each in evidence.world.story.items)
    erased = {at // HOUR for it, at in topics.delivered.items() if topics.blobs[it] in forgotten}
    removals = [each for each in evidence.world.story.items if isinstance(each, RemovePipeline)]
    missing = {
        event
        for event, at in topics.delivered.items()
        if event not in evidence.decided_events
        and topics.blobs[event] not in forgotten
        and not (may_be_cut and at // HOUR in erased)
        and not any(
            each.at - EVENT_DELAY_SECONDS < at < each.at + each.seconds for each in removals
        )
    }
    if missing:
        yield f"no decision on {sorted(missing)}"


INVARIANTS: tuple[Invariant, ...] = (
    *INVARIANTS_OF_INPUTS,
    *INVARIANTS_OF_CAPACITY,
    *INVARIANTS_OF_OUTCOMES,
    *INVARIANTS_OF_ROLLOUTS,
    *INVARIANTS_OF_APPROVALS,
    *INVARIANTS_OF_PROMOTIONS,
    *INVARIANTS_OF_LANDINGS,
    *INVARIANTS_OF_REQUESTS,
    *INVARIANTS_OF_THE_API,
    *INVARIANTS_OF_REPRODUCTIONS,
    only_services_fail,
    nothing_waits_for_ever,
    cost_is_bounded,
    custom_status_is_small,
    instances_break_for_a_reason,
    every_claim_has_its_run,
    every_run_ends_in_one_state,
    every_end_is_notified_once,
    every_end_is_in_the_list_of_runs,
    every_request_ends_or_is_alerted,
    no_effect_happens_twice,
    models_are_of_runs_that_succeeded,
    no_job_goes_on_alone,
    what_is_trained_on_was_whole,
    every_whole_batch_is_accounted_for,
    every_event_is_decided,
)
