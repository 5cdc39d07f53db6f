"""`gate` and `model`: which models are registered and promoted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from handlers.notify import delivery
from handlers.training import assets
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.features.approvals import ASKED
from tests.simulation.features.promotions import OverwriteModel
from tests.simulation.story import DAY, HOUR, JobFate, QuestionFate, Upload
from tests.simulation.weeks import UPLOAD

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence


# Ends that no operator has to do anything about.
VERDICTS = frozenset({"succeeded", "not_promoted", "superseded"})


def promoted_models_are_above_the_floor(evidence: Evidence) -> Iterator[str]:
    """The floor is that of the gate in the run's frozen configuration."""
    for model in evidence.models:
        run = evidence.runs.get(model.tags["landfall.run"])
        if run is None or run.state != "succeeded":
            continue
        floor = evidence.requests[run.id].pipeline.gate.floor
        metrics = run.instance.custom_status["metrics"]
        if metrics["accuracy"] < floor:
            yield f"model {model.version} of {run.id} has {metrics}, the floor is {floor}"


def models_are_those_that_were_judged(evidence: Evidence) -> Iterator[str]:
    """A model whose files are written again while it is judged is not registered."""
    for model in evidence.models:
        if model.tags["landfall.run"] in evidence.world.acts.accepted[OverwriteModel]:
            yield f"model {model.version} has other files than those that were judged"


def verdicts_are_no_failures(evidence: Evidence) -> Iterator[str]:
    """They are alerted as information, and nothing is dead-lettered that redrive would train."""
    for run in evidence.runs.values():
        if run.state in VERDICTS and evidence.letters[run.id]:
            yield f"{run.id} ended as {run.state}, and is dead-lettered"
    for alert in evidence.alerts:
        severity = alert.application_properties[b"severity"]
        if alert.subject in VERDICTS and severity != b"information":
            yield f"alert {alert.message_id} has severity {severity}"


LATE_ANSWER = QuestionFate(number=1, end="is approved", delay=5 * HOUR)

FEATURE = Feature(
    changes={
        "margin": Change(weight=0.1, sections={"gate": {"champion_margin": 0.01}}),
        "challengers": Change(weight=0.1, sections={"model": {"register_challengers": True}}),
    },
    invariants=(
        promoted_models_are_above_the_floor,
        models_are_those_that_were_judged,
        verdicts_are_no_failures,
    ),
    mistakes={
        "verdicts are alerted as errors": Mistake(
            plant=lambda: mock.patch.object(delivery, "severity_of", return_value="error"),
            found_by=verdicts_are_no_failures,
            items=[
                UPLOAD,
                Upload(at=DAY, path="1.png", content="two"),
                JobFate(number=2, end="is worse"),
            ],
        ),
        "files that were written after the verdict are registered": Mistake(
            plant=lambda: mock.patch.object(assets, "read_model_hash", return_value=None),
            found_by=models_are_those_that_were_judged,
            items=[*ASKED, LATE_ANSWER, OverwriteModel(at=HOUR)],
        ),
    },
)
