"""Held batches: one alert for each reason, and people who release them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.landing import holding
from orchestrations.landing import landing
from orchestrations.names import REQUEST_PREFIX, landing_instance
from tests.simulation.excuses import excused, shut_seconds
from tests.simulation.fakes.training import RECORDS_CONTAINER
from tests.simulation.feature import Feature, Mistake, asked
from tests.simulation.scheduler import START
from tests.simulation.story import DAY, HOUR, Delete, Release, ReleaseAfter, Upload
from tests.simulation.weeks import UPLOADED_AT

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence


# A released batch: its landing may wait for a run of the zone.
LANDED_AFTER_SECONDS = 8 * HOUR
FREEZING_SECONDS = 60.0


def _held_alerts(evidence: Evidence) -> list[Any]:
    return [evidence.data_of(each) for each in evidence.alerts if each.subject == "batch-held"]


def one_hold_has_one_alert(evidence: Evidence) -> Iterator[str]:
    """Batches of a zone that are held one after another are one alert for each reason."""
    holds, held = Counter[str](), set[str]()
    for batch in evidence.batches_of_all:
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


def what_is_released_is_landed_again(evidence: Evidence) -> Iterator[str]:
    """A release opens a landing: the next round of reconciliation makes up for one that did not."""
    overdue = evidence.landings_told("landing-overdue")
    due = evidence.world.story.reconcile_every + LANDED_AFTER_SECONDS + shut_seconds(evidence)
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


async def _release(acts: Acts, _: Release) -> None:
    world = acts.world
    held = world.account.container(RECORDS_CONTAINER).below(f"held/{world.pipeline.name}/")
    if held:
        newest = max(held, key=lambda blob: blob.last_modified)
        version = json.loads(newest.content)["dataset"]["version"]
        body = json.dumps({"dataset_version": version}).encode()
        await acts.post("release", body, name=world.pipeline.name)


# While the landing that held it ends.
RELEASED = (
    *(Upload(at=HOUR, path=f"{n}.png", content=f"{n}") for n in range(4)),
    *(Delete(at=DAY, path=f"{n}.png") for n in range(3)),
    Upload(at=DAY, path="9.png", content="nine"),
    ReleaseAfter(number=1, delay=2.4),
)


def _never_so(*_: Any) -> bool:
    return False


def _alert_for_each_content(
    batch: Any, kind: Any, *name: str, details: dict[str, Any]
) -> Generator[Any, Any, None]:
    return _alert(batch, kind, *name, details.get("dataset_version", ""), details=details)


_alert = landing._Batch.alert  # pyright: ignore[reportPrivateUsage]

FEATURE = Feature(
    acts={Release: asked(_release)},
    invariants=(one_hold_has_one_alert, what_is_released_is_landed_again),
    mistakes={
        "releases are not looked for": Mistake(
            plant=lambda: mock.patch.object(holding, "is_released", _never_so),
            found_by=what_is_released_is_landed_again,
            items=RELEASED,
        ),
        "each content that is held has an alert": Mistake(
            plant=lambda: mock.patch.object(
                landing._Batch,  # pyright: ignore[reportPrivateUsage]
                "alert",
                _alert_for_each_content,
            ),
            found_by=one_hold_has_one_alert,
            items=[
                *(Upload(at=UPLOADED_AT, path=f"{n}.png", content=f"{n}") for n in range(3)),
                *(Delete(at=8 * HOUR, path=f"{n}.png") for n in (1, 2)),
                *(Upload(at=(8 + n) * HOUR, path="0.png", content=f"again {n}") for n in range(2)),
            ],
        ),
    },
)
