"""`checks.job` and `champion_check`: jobs that a batch passes before it is trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.landing import comparing
from orchestrations.contracts.checked import Checked
from orchestrations.names import landing_instance
from orchestrations.training import concluding
from tests.simulation.excuses import SERVICES_OF_ALERTS, excused, sent_later
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.features.data_rules import batches_that_break_a_rule_are_held
from tests.simulation.scheduler import START
from tests.simulation.story import HOUR, Item, JobFate, Upload
from tests.simulation.weeks import UPLOAD, UPLOADED_AT, release_with

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.simulation.evidence import Evidence

CHEAP = {"cluster": "spot", "size": "Standard_D4s_v5", "priority": "low_priority", "nodes": 1}


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


def _pass_any(run: Any, _job: Any, _results: Any) -> Generator[Any, Any, bool]:
    return (yield from concluding.pass_check(run, PASSED))


PASSED = Checked(passed=True, message="")
# The jobs in order: the training, the data check of the second batch.
WRONG: list[Item] = [
    UPLOAD,
    release_with("jobs of checks"),
    Upload(at=5 * HOUR, path="2.png", content="two"),
    JobFate(number=2, end="is worse"),
]
# The data is right, and the champion has lost nothing.
GOOD_CHAMPION: list[Item] = [
    *WRONG[:3],
    *(JobFate(number=n, end="completes") for n in (2, 3)),
]

FEATURE = Feature(
    changes={
        "jobs of checks": Change(
            weight=0.2,
            sections={
                "checks": {"job": "checks.yml", "compute": [CHEAP]},
                "champion_check": {"job": "champion.yml", "compute": [CHEAP]},
            },
            jobs=("checks.yml", "champion.yml"),
        )
    },
    invariants=(training_waits_for_its_checks, failed_checks_hold_and_alert),
    mistakes={
        "a failed data check is a warning": Mistake(
            plant=lambda: mock.patch.object(concluding, "_conclude_check", _pass_any),
            found_by=training_waits_for_its_checks,
            items=WRONG,
        ),
        "a failed data check holds nothing": Mistake(
            plant=lambda: mock.patch.object(concluding, "_hold", return_value=()),
            found_by=failed_checks_hold_and_alert,
            items=WRONG,
        ),
        "a champion has always lost": Mistake(
            plant=lambda: mock.patch.object(concluding, "judge_champion", return_value=PASSED),
            found_by=training_waits_for_its_checks,
            items=GOOD_CHAMPION,
        ),
        "what a check has ended counts as trained on": Mistake(
            plant=lambda: mock.patch.object(comparing, "find_end_by_check", return_value=None),
            found_by=batches_that_break_a_rule_are_held,
            # One of four files is overwritten, and that does not train; then a second one is.
            items=[
                *(Upload(at=UPLOADED_AT, path=f"{n}.png", content=f"{n}") for n in range(4)),
                release_with("jobs of checks", "checks"),
                *(Upload(at=5 * n * HOUR, path=f"{n}.png", content=f"other {n}") for n in (1, 2)),
                *(JobFate(number=n, end="completes") for n in (2, 3, 4)),
                JobFate(number=5, end="is worse"),
            ],
        ),
    },
)
