"""Redrives of dead letters, also with changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.operate import redrive
from orchestrations.configuration.pipeline import ComputeOption
from tests.simulation.fakes.training import LANDING_CONTAINER
from tests.simulation.feature import Feature, Mistake, asked
from tests.simulation.story import (
    HOUR,
    JobFate,
    Redrive,
    RedriveChange,
    RedriveChanged,
    TerminateAfter,
)
from tests.simulation.weeks import FIRST, UPLOAD, UPLOADED_AT, first_job, quiet_week

if TYPE_CHECKING:
    from handlers.platform.clients import Clients
    from orchestrations.contracts.runs import RunRequest
    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence

MORE_ATTEMPTS = 2
LARGE: dict[str, Any] = {"cluster": "large", "size": "Standard_D16s_v5", "nodes": 2}
QUEUED_LIMIT_SECONDS = 1_800.0


def changes_of_a_redrive_are_made(evidence: Evidence) -> Iterator[str]:
    """A person's changes are in the run, in its job, and in its lineage."""
    for name, change in evidence.world.acts.changed.items():
        if name not in evidence.runs:
            continue  # every_run_ends_in_one_state
        request = evidence.requests[name]
        life = evidence.world.cluster.lives.get(name)
        lineage = request.redrive
        is_made = lineage is not None
        if lineage is None:
            pass
        elif change == "compute":
            on_it = life is None or life.cluster == LARGE["cluster"]
            is_made = on_it and request.pipeline.compute == [ComputeOption.model_validate(LARGE)]
        elif change == "limits":
            is_made = request.pipeline.limits.queued_seconds == QUEUED_LIMIT_SECONDS
        elif change == "attempts":
            is_made = lineage.last_attempt is not None
        elif change == "job":
            is_made = lineage.job is not None
        else:
            is_made = bool(lineage.files_left_out)
        if not is_made:
            yield f"{name} was redriven with a change of {change}, and has {lineage}"


async def _redrive(acts: Acts, _: Redrive) -> None:
    answer = await acts.post("redrive", b'{"maximum": 100}')
    assert answer.status == 200, answer
    acts.redrives += 1


async def _redrive_changed(acts: Acts, item: RedriveChanged) -> None:
    world = acts.world
    letters = world.broker.dead_letters("rejected-runs").messages
    runs = sorted(each.message_id for each in letters if each.message_id in world.hub.instances)
    if not runs:
        return
    changes = _changes(acts, item.change)
    document = {"run": runs[0], "by": "ada", "reason": "try", "changes": changes}
    answer = await acts.post("redrive", json.dumps(document).encode())
    # 400: it has only this file; 404 and 409: it was redriven meanwhile, or its content is
    # another run's.
    assert answer.status in (200, 400, 404, 409), answer
    if answer.status == 200:
        (following,) = answer.document["redriven"]
        acts.changed[following] = item.change


def _changes(acts: Acts, change: RedriveChange) -> dict[str, Any]:
    match change:
        case "compute":
            return {"compute": LARGE}
        case "limits":
            return {"limits": {"queued_seconds": QUEUED_LIMIT_SECONDS}}
        case "attempts":
            return {"attempts": MORE_ATTEMPTS}
        case "job":
            return {"job": "deployed"}
        case "without a file":
            prefix = acts.world.pipeline.source.prefix
            zone = acts.world.account.container(LANDING_CONTAINER).below(prefix)
            names = [each.name.removeprefix(prefix) for each in zone]
            return {"without_files": names[:1] or ["gone.png"]}


def _unchanged(_clients: Clients, request: RunRequest, *_: Any) -> RunRequest:
    return request.model_copy(update={"attempt": request.attempt + 1})


FEATURE = Feature(
    acts={Redrive: asked(_redrive), RedriveChanged: asked(_redrive_changed)},
    invariants=(changes_of_a_redrive_are_made,),
    mistakes={
        "changes of a redrive are dropped": Mistake(
            plant=lambda: mock.patch.object(redrive, "changed_request", _unchanged),
            found_by=changes_of_a_redrive_are_made,
            items=[
                UPLOAD,
                first_job("leaves a null metric"),
                RedriveChanged(at=UPLOADED_AT + 4 * HOUR, change="compute"),
            ],
        ),
    },
    kept={
        "changes for a run whose next attempt had begun": quiet_week(
            FIRST,
            JobFate(number=1, end="fails"),
            TerminateAfter(activity="schedule_retry", number=1),
            RedriveChanged(at=9 * HOUR, change="compute"),
            seed=209,
        ),
    },
)
