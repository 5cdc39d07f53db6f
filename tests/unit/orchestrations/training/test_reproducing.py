"""What a reproduction says, and that it registers nothing, whatever happens."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrations.contracts.base import Contract, Failure
from orchestrations.contracts.reproductions import Difference, Reproduces, ReproductionFacts
from orchestrations.errors import NotReproducible
from orchestrations.names import round_of, version_of
from orchestrations.training.reproducing import judge_reproduction
from tests.unit.orchestrations.examples import DATASET
from tests.unit.orchestrations.training.simulated_workspace import (
    FAILING,
    QUICK,
    Cluster,
    left,
    recorded,
)

OURS = Reproduces(name="digits", version="3", run="digits-aa-1", champion="2", number=1)
NAMED = tuple(Difference(what=f"file {name}", original="1", again=None) for name in "abcdefghi")
SAME = "bits equal: the model's files are those of digits:3"


def facts(accuracy: float | None, differences: int, *, files: int = 2) -> ReproductionFacts:
    return ReproductionFacts(
        files=files,
        files_differ=differences > 1,
        metrics={"accuracy": (0.9, accuracy), "champion_accuracy": (None, None)},
        differences=NAMED[:differences],
        more=1 if differences > 8 else 0,
    )


@pytest.mark.parametrize(
    ("found", "equal", "told"),
    [
        (facts(0.9, 0), "bits", SAME),
        (facts(0.8, 1), "bits", f"{SAME}; not the same: file a"),
        (facts(0.9, 0, files=0), "metrics", "metrics equal within 0.001"),
        (
            facts(0.9005, 2),
            "metrics",
            "metrics equal within 0.001; not the same: file a, file b",
        ),
        (
            facts(0.8, 9),
            None,
            (
                "differs by more than 0.001: accuracy was 0.9, and is 0.8; not the same: file a, "
                "file b, file c, file d, file e, file f, file g, file h and 2 more"
            ),
        ),
    ],
)
def test_bits_or_metrics_are_equal_or_what_differs_is_named(
    found: ReproductionFacts, equal: str | None, told: str
) -> None:
    answer = judge_reproduction(OURS, found)
    assert (answer.equal, answer.message) == (equal, told)
    wide = judge_reproduction(OURS.model_copy(update={"tolerance": 0.2}), found)
    assert wide.equal == (equal or "metrics"), "the request's tolerance wins"


class Again(Cluster):
    """Runs a reproduction."""

    facts: ReproductionFacts

    def answer(self, name: str, request: Any) -> Contract:
        return self.facts if name == "compare_reproduction" else super().answer(name, request)


@pytest.mark.parametrize(("accuracy", "state"), [(0.9, "reproduced"), (None, "not_reproduced")])
def test_it_is_compared_and_not_judged_registered_or_superseded(
    accuracy: float | None, state: str
) -> None:
    # Without the gate's metric: a run that is judged would be rejected.
    cluster = Again(QUICK, results=left({}), superseded_by="digits-bb-1")
    cluster.facts = facts(accuracy, 2)
    output = cluster.start(2, reproduces=OURS).output
    assert (output["state"], output["reproduces"]) == (state, "digits:3")
    called = {name for name, _ in cluster.calls}
    assert not called & {"register_model", "start_rollout", "check_superseded", "dead_letter"}
    assert cluster.told == ["started", state]
    answer = recorded(cluster).reproduction
    assert answer is not None
    assert answer.message == output["reason"]
    (submitted,) = cluster.requests("submit_job")
    assert submitted.request.run == f"digits-{DATASET.version}p1-2"
    assert (round_of("aar2p3"), version_of("aar2p3"), version_of("aap3")) == ("aar2", "aa", "aa")


@pytest.mark.parametrize(
    ("kind", "state"), [("DataChanged", "not_reproduced"), ("DataRejected", "rejected")]
)
def test_data_that_is_not_what_it_was_is_an_answer_and_changes_nothing(
    kind: str, state: str
) -> None:
    failure = Failure(type=kind, message="1.png is other", permanent=True)
    cluster = Again(FAILING, results=left({}, failure=failure, bad_files=1))
    output = cluster.start(reproduces=OURS).output
    assert (output["state"], "1.png is other" in str(output)) == (state, True)
    assert not cluster.requests("quarantine_files")


def test_what_is_gone_rejects_it_by_name() -> None:
    gone = NotReproducible("job digits-aa-1 was deleted in Azure ML")
    output = Again(QUICK, refuse={"submit_job": gone}).start(reproduces=OURS).output
    assert (output["state"], output["error"]["type"]) == ("rejected", "NotReproducible")
