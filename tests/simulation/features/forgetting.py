"""Requests to forget: their contents are found, and trained on no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from unittest import mock

from handlers.landing import freezing
from handlers.operate import redrive, redrive_changes
from tests.simulation.excuses import excused
from tests.simulation.feature import Drawn, Feature, Mistake, Week, asked
from tests.simulation.planting import round_without
from tests.simulation.scheduler import START
from tests.simulation.story import (
    DAY,
    HOUR,
    Act,
    Delete,
    Deploy,
    Item,
    JobFate,
    Redrive,
    RedriveChanged,
    TerminateAfter,
    Upload,
)
from tests.simulation.weeks import UPLOAD, UPLOADED_AT, first_job, quiet_week

if TYPE_CHECKING:
    import random

    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence


class Forget(Act):
    """Forget the first blob of the zone, over the HTTP API."""


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


def _forget_one(chance: random.Random, week: Week) -> Iterator[Item]:
    yield Forget(at=week.moment(chance))


async def _forget(acts: Acts, _: Forget) -> None:
    blobs = sorted(acts.world.zone[-1].blobs) if acts.world.zone else []
    if blobs:
        acts.accept(Forget, blobs[0])
        body = {"by": "ada", "reason": "a person asked", "blobs": [f"landing/{blobs[0]}"]}
        answer = await acts.post("forget", json.dumps(body).encode())
        # 400: the pipeline is not deployed now.
        assert answer.status in (202, 400), answer


LEFT_OUT = (
    *(Upload(at=HOUR, path=f"{n}.png", content=f"{n}") for n in range(3)),
    JobFate(number=1, end="leaves no metrics"),
    Forget(at=9 * HOUR),
    Delete(at=10 * HOUR, path="0.png"),
    RedriveChanged(at=5 * DAY, change="without a file"),
)


FEATURE = Feature(
    drawn={"blobs that are forgotten": Drawn(weight=0.1, items=_forget_one)},
    acts={Forget: asked(_forget)},
    invariants=(forgotten_contents_are_found_and_trained_on_no_more,),
    mistakes={
        "forgotten contents stay when files are left out": Mistake(
            plant=lambda: mock.patch.object(redrive_changes, "read_contents", return_value={}),
            found_by=forgotten_contents_are_found_and_trained_on_no_more,
            items=LEFT_OUT,
            zone="copied",
        ),
        "runs with forgotten contents are redriven": Mistake(
            plant=lambda: mock.patch.object(redrive, "find_request_of", return_value=None),
            found_by=forgotten_contents_are_found_and_trained_on_no_more,
            items=[UPLOAD, first_job("leaves no metrics"), Forget(at=9 * HOUR), Redrive(at=DAY)],
            zone="copied",
        ),
        "forgotten contents are frozen again": Mistake(
            plant=lambda: mock.patch.object(freezing, "read_contents", return_value={}),
            found_by=forgotten_contents_are_found_and_trained_on_no_more,
            items=[UPLOAD, Forget(at=DAY), Upload(at=2 * DAY, path="2.png", content="one")],
            zone="copied",
        ),
        "requests to forget that broke are left": Mistake(
            plant=round_without("check_forgets"),
            found_by=forgotten_contents_are_found_and_trained_on_no_more,
            items=[UPLOAD, TerminateAfter(activity="forget_blobs", number=1), Forget(at=DAY)],
            zone="copied",
        ),
        "a freeze does not see what is forgotten meanwhile": Mistake(
            plant=lambda: mock.patch.object(freezing, "check_none_forgotten_since"),
            found_by=forgotten_contents_are_found_and_trained_on_no_more,
            # The zone is quiet at 1,300 s, and its freeze takes some seconds.
            items=[UPLOAD, Upload(at=UPLOADED_AT, path="2.png", content="two"), Forget(at=1_302.4)],
            zone="copied",
        ),
    },
    kept={
        "a blob is forgotten after a champion was scored on new files": quiet_week(
            Deploy(at=100, floor=0.7, changes=("jobs of checks",)),
            *(Upload(at=HOUR, path=f"{n}.png", content=f"{n}") for n in range(3)),
            Upload(at=9 * HOUR, path="9.png", content="nine"),
            *(JobFate(number=n, end="completes") for n in (1, 2, 3, 4)),
            Forget(at=DAY),
        ),
    },
)
