"""`gate.slices`: a model that is better on the whole, and breaks a slice, is not promoted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from handlers.training import job_outputs
from orchestrations.training import comparing as comparing_models
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.story import HOUR, Deploy, JobFate, Upload
from tests.simulation.weeks import UPLOAD, first_job

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence
    from tests.simulation.subjects import Run


def promoted_models_hold_on_every_slice(evidence: Evidence) -> Iterator[str]:
    """A model that is better on the whole, and breaks a slice, does not replace a champion.

    Neither does one whose comparison contradicts itself.
    """
    for model in evidence.models:
        run = evidence.runs.get(model.tags["landfall.run"])
        life = evidence.world.cluster.lives.get(model.tags["landfall.run"])
        if run is None or life is None or model.tags.get("landfall.role") == "challenger":
            continue
        is_guarded = bool(evidence.requests[run.id].pipeline.gate.slices)
        is_broken = life.end == "breaks a slice" and "landfall.champion" in model.tags
        if (is_broken and is_guarded) or life.end == "leaves a wrong comparison":
            yield f"model {model.version} of {run.id} was promoted, and its job {life.end}"


def _alerts_about(evidence: Evidence, run: Run, kind: str) -> Iterator[str]:
    for alert in evidence.alerts:
        if alert.subject == kind and json.loads(alert.content)["data"]["id"] == run.id:
            yield alert.content.decode()


def refusals_for_a_slice_say_which(evidence: Evidence) -> Iterator[str]:
    """With the numbers, in the status, and so in the notification."""
    for run in evidence.runs.values():
        status = run.instance.custom_status or {}
        if status.get("verdict") != "slice-fell":
            continue
        life = evidence.world.cluster.lives[run.id]
        told = "label:7 fell by 30 points (p < 0.0001, n = 200, gate.slices allows 5 points)"
        if life.end != "breaks a slice" or run.state != "not_promoted":
            yield f"{run.id} is {run.state} for a slice, and its job {life.end}"
        for text in (status["reason"], *_alerts_about(evidence, run, "not_promoted")):
            if told not in text:
                yield f"{run.id} does not say which slice fell: {text}"


FEATURE = Feature(
    changes={
        "slices": Change(
            weight=0.2,
            sections={
                "gate": {"significance": {}, "slices": [{"match": "*:*", "fall_at_most": 0.05}]}
            },
        )
    },
    invariants=(promoted_models_hold_on_every_slice, refusals_for_a_slice_say_which),
    mistakes={
        "slices are not looked at": Mistake(
            plant=lambda: mock.patch.object(comparing_models, "_changes", return_value=()),
            found_by=promoted_models_hold_on_every_slice,
            items=[
                UPLOAD,
                Deploy(at=2 * HOUR, floor=0.5, changes=("slices",)),
                Upload(at=5 * HOUR, path="2.png", content="two"),
                JobFate(number=2, end="breaks a slice"),
            ],
        ),
        "a broken comparison is no comparison": Mistake(
            plant=lambda: mock.patch.object(job_outputs, "_read_comparison", return_value=None),
            found_by=promoted_models_hold_on_every_slice,
            items=[UPLOAD, first_job("leaves a wrong comparison")],
        ),
    },
)
