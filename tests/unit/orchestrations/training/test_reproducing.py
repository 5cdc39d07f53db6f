"""What a reproduction says, and that it registers nothing, whatever happens."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrations.contracts.base import Contract, Failure
from orchestrations.contracts.reproductions import Difference, Reproduces, ReproductionFacts
from orchestrations.errors import NotReproducible
from orchestrations.names import reproduction_name, round_of, run_id, version_of
from orchestrations.training.reproducing import judge_reproduction
from tests.unit.orchestrations.examples import DATASET, PIPELINE
from tests.unit.orchestrations.training.simulated_workspace import (
    FAILING,
    QUICK,
    Cluster,
    left,
    recorded,
)

OURS = Reproduces(name="digits", version="3", run="digits-aa-1", champion="2", number=1)
FILE = Difference(what="file weights.pt", original="1 bytes", again="2 bytes")
OTHER = Difference(what="environment", original="digits:3", again="digits:4")


def facts(**found: Any) -> ReproductionFacts:
    given: dict[str, Any] = {"files": 2, "settings": (), "metrics": {}, "differing": ()}
    return ReproductionFacts(**given | found)


@pytest.mark.parametrize(
    ("found", "equal", "told"),
    [
        (facts(), "bits", "bits equal: all files of digits:3 (2)"),
        (
            facts(metrics={"images_per_second": (10.0, 20.0)}),
            "bits",
            "bits equal: all files of digits:3 (2); not the same: metric images_per_second",
        ),
        (
            facts(differing=(FILE,), metrics={"accuracy": (0.9, 0.9005)}),
            "metrics",
            "metrics equal within 0.001; not the same: metric accuracy, file weights.pt",
        ),
        (
            facts(differing=(FILE,), settings=(OTHER,), metrics={"accuracy": (0.9, 0.8)}, more=9),
            None,
            (
                "differs by more than 0.001: accuracy was 0.9, and is 0.8; not the same: "
                "environment, metric accuracy, file weights.pt and 4 more"
            ),
        ),
        (
            facts(differing=(FILE,), metrics={"champion_accuracy": (0.9, None)}),
            None,
            (
                "differs by more than 0.001: champion_accuracy was 0.9, and is None; not the same: "
                "metric champion_accuracy, file weights.pt"
            ),
        ),
        (facts(files=0), "metrics", "metrics equal within 0.001"),
    ],
)
def test_bits_or_metrics_are_equal_or_what_differs_is_named(
    found: ReproductionFacts, equal: str | None, told: str
) -> None:
    answer = judge_reproduction(OURS, found, PIPELINE)
    assert (answer.equal, answer.message) == (equal, told)
    assert len(answer.differences) == len(found.settings + found.differing) + len(found.metrics)


def test_the_tolerance_of_the_request_wins() -> None:
    found = facts(differing=(FILE,), metrics={"accuracy": (0.9, 0.8)})
    asked = OURS.model_copy(update={"tolerance": 0.2})
    assert judge_reproduction(asked, found, PIPELINE).equal == "metrics"


class Again(Cluster):
    """Runs a reproduction."""

    facts: ReproductionFacts = facts()

    def answer(self, name: str, request: Any) -> Contract:
        return self.facts if name == "compare_reproduction" else super().answer(name, request)


@pytest.mark.parametrize(("differing", "state"), [((), "reproduced"), ((FILE,), "not_reproduced")])
def test_it_is_compared_and_not_judged_registered_or_rolled_out(
    differing: tuple[Difference, ...], state: str
) -> None:
    # Without the gate's metric: a run that is judged would be rejected.
    cluster = Again(QUICK, results=left({}), superseded_by="digits-bb-1")
    cluster.facts = facts(differing=differing, metrics={"accuracy": (0.9, None)})
    instance = cluster.start(2, reproduces=OURS)
    assert instance.output["state"] == state
    assert instance.output["reproduces"] == "digits:3"
    called = {name for name, _ in cluster.calls}
    assert not called & {"register_model", "start_rollout", "check_superseded", "dead_letter"}
    assert cluster.told == ["started", state]
    answer = recorded(cluster).reproduction
    assert answer is not None
    assert answer.message == instance.output["reason"]
    (submitted,) = cluster.requests("submit_job")
    training = reproduction_name(DATASET.version, 1)
    assert submitted.request.run == run_id("digits", training, 2)
    assert (round_of(training), version_of(f"{DATASET.version}r2p3")) == (DATASET.version,) * 2


def test_data_that_was_overwritten_is_an_answer() -> None:
    failure = Failure(type="DataChanged", message="1.png was overwritten", permanent=True)
    cluster = Again(FAILING, results=left({}, failure=failure))
    output = cluster.start(reproduces=OURS).output
    told = "differs: its data: 1.png was overwritten"
    assert (output["state"], output["reason"]) == ("not_reproduced", told)


def test_files_that_it_refuses_are_left_out_of_nothing() -> None:
    failure = Failure(type="DataRejected", message="bad", permanent=True)
    cluster = Again(FAILING, results=left({}, failure=failure, bad_files=1))
    assert cluster.start(reproduces=OURS).output["state"] == "rejected"
    assert not cluster.requests("quarantine_files")


def test_what_is_gone_rejects_it_by_name() -> None:
    gone = NotReproducible("job digits-aa-1 was deleted in Azure ML")
    output = Again(QUICK, refuse={"submit_job": gone}).start(reproduces=OURS).output
    assert output["state"] == "rejected"
    assert output["error"]["type"] == "NotReproducible"
