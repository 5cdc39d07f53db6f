"""Pauses: data that lands is held until a person resumes the pipeline, and is trained on then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from handlers.landing import comparing
from handlers.operate.api import pausing
from orchestrations.names import landing_instance
from tests.simulation.excuses import excused, overlap
from tests.simulation.feature import LAST_UPLOAD, Drawn, Feature, Mistake, Week, asked
from tests.simulation.people import WHY
from tests.simulation.scheduler import START
from tests.simulation.story import DAY, HOUR, Act, Item
from tests.simulation.weeks import FIRST, UPLOAD_AT_THE_END, quiet_week

if TYPE_CHECKING:
    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence

# A batch whose comparison comes after the end of the pause is trained on.
COMPARING_SECONDS = 120.0


class Pause(Act):
    """Pause the pipeline over the HTTP API."""


class Resume(Act):
    """Resume it."""


def _drawn(chance: random.Random, week: Week) -> Iterator[Item]:
    for _ in range(chance.choice([1, 1, 2])):
        at = week.moment(chance) - chance.choice([0.0, 200.0, 600.0])
        yield Pause(at=at)
        yield Resume(at=min(at + chance.choice([60.0, 900.0, 5 * HOUR, DAY]), LAST_UPLOAD))


async def _pause(acts: Acts, item: Pause) -> None:
    await _change(acts, "pause_pipeline", item)


async def _resume(acts: Acts, item: Resume) -> None:
    await _change(acts, "resume_pipeline", item)


async def _change(acts: Acts, route: str, item: Act) -> None:
    answer = await acts.post(route, WHY, name=acts.world.pipeline.name)
    # 404: the pipeline is not deployed now.
    assert answer.status in (200, 404), answer
    if answer.status == 200:
        acts.accept(type(item), f"{item.at}")


def _sure_pauses(evidence: Evidence) -> Iterator[tuple[float, float]]:
    """From the answer about each pause until somebody first asked for its end."""
    asked_at = [item.at for item in evidence.world.story.items if isinstance(item, Resume)]
    for paused_at, since in evidence.world.acts.accepted[Pause].items():
        ends = (at for at in asked_at if at >= float(paused_at))
        yield since, min(ends, default=evidence.world.scheduler.time())


def paused_seconds(evidence: Evidence, began: float, ended: float) -> float:
    """For how long of a span of time the pipeline was paused at the most."""
    accepted = evidence.world.acts.accepted
    pauses = [item.at for item in evidence.world.story.items if isinstance(item, Pause)]
    # After an outage, the end of a pause may be asked for before the pause is.
    ends = (
        min((it for it in accepted[Resume].values() if it >= since), default=ended)
        for at in pauses
        for since in [accepted[Pause].get(f"{at}", at)]
    )
    return sum(overlap(began, ended, *span) for span in zip(pauses, ends, strict=True))


def nothing_is_trained_on_in_a_pause(evidence: Evidence) -> Iterator[str]:
    """A batch that is frozen in a pause starts no run, unless a person releases it."""
    for batch in evidence.batches:
        at = (batch.dataset.frozen_at - START).total_seconds()
        name = f"released/{batch.result.pipeline}/{batch.dataset.version}"
        if batch.result.outcome != "started" or evidence.records(name):
            continue
        for since, until in _sure_pauses(evidence):
            compared_by = at + COMPARING_SECONDS + excused(evidence, at, until)
            if since <= at and compared_by < until:
                yield f"{batch.batch} was frozen at {at:.0f} s, paused from {since:.0f} s"


def what_a_pause_held_goes_on_after_it(evidence: Evidence) -> Iterator[str]:
    """When all has come to rest and no pause is in force, none holds a batch."""
    name = evidence.world.pipeline.name
    pause = evidence.records(f"paused/{name}").get(f"paused/{name}.json")
    if not evidence.world.is_idle or (pause is not None and pause["resumed_at"] is None):
        return
    # A zone that is not whole is listed when its marker comes, and operators know.
    overdue = evidence.landings_told("landing-overdue")
    for record, held in evidence.records(f"held/{name}/").items():
        landing = landing_instance(name, held["dataset"]["partition"])
        if held["reason"] == "paused" and landing not in overdue:
            yield f"{record} is still held: {held['message']}"


PAUSED: list[Item] = [FIRST, Pause(at=HOUR + 60), Resume(at=DAY)]

FEATURE = Feature(
    drawn={"pauses": Drawn(weight=0.15, items=_drawn, apart=True)},
    acts={Pause: asked(_pause), Resume: asked(_resume)},
    invariants=(nothing_is_trained_on_in_a_pause, what_a_pause_held_goes_on_after_it),
    mistakes={
        "pauses are not looked at": Mistake(
            plant=lambda: mock.patch.object(comparing, "read_pause", return_value=None),
            found_by=nothing_is_trained_on_in_a_pause,
            items=PAUSED,
        ),
        "the end of a pause opens no landing": Mistake(
            plant=lambda: mock.patch.object(pausing, "zones_to_resume", return_value=()),
            found_by=what_a_pause_held_goes_on_after_it,
            items=[
                Pause(at=UPLOAD_AT_THE_END.at),
                UPLOAD_AT_THE_END,
                Resume(at=UPLOAD_AT_THE_END.at + HOUR),
            ],
        ),
    },
    holds={"paused": quiet_week(*PAUSED)},
)
