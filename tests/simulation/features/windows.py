"""`deploy.windows`: a new model gets more traffic while a window is open."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING
from unittest import mock

from orchestrations.rollout import rollout as rollout_module
from tests.simulation.excuses import excused
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.rollout_checker import COPY_SECONDS, gains
from tests.simulation.rollout_items import PromoteRollout
from tests.simulation.scheduler import START
from tests.simulation.story import DAY, Deploy
from tests.simulation.weeks import UPLOAD

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence


def traffic_moves_while_windows_are_open(evidence: Evidence) -> Iterator[str]:
    """A new model gets more live traffic only in a window, unless a person promotes its rollout."""
    acts = evidence.world.acts
    for rollout in evidence.rollouts.values():
        deploy = rollout.pipeline.deploy
        windows = None if deploy is None else deploy.windows
        if (
            windows is None
            or rollout.id in {*acts.accepted[PromoteRollout], *acts.unanswered}
            or rollout.is_back
        ):
            continue
        for at, _ in gains(evidence, rollout):
            # From the look at the windows to the change: its tries, and a host that was down.
            slack = COPY_SECONDS + excused(evidence, at - DAY, at)
            looked_at = START + timedelta(seconds=max(at - slack, 0.0))
            opening = windows.next_opening(looked_at)
            if opening is None or (opening - START).total_seconds() > at:
                yield f"{rollout.id} got more traffic at {at:.0f} s, and its windows were closed"


FEATURE = Feature(
    changes={
        "windows": Change(weight=0.2, sections={"deploy": {"windows": {"open": ["* 6-17 * * *"]}}})
    },
    invariants=(traffic_moves_while_windows_are_open,),
    mistakes={
        "windows are not looked at": Mistake(
            plant=lambda: mock.patch.object(rollout_module, "_closed_for", return_value=()),
            found_by=traffic_moves_while_windows_are_open,
            items=[Deploy(at=500, floor=0.7, changes=("windows",)), UPLOAD],
            zone="online",
        ),
    },
)
