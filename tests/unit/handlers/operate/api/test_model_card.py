"""The Markdown of a model card."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from handlers.operate.api.actions import Action
from handlers.operate.api.model_card import Facts, tell
from handlers.operate.api.model_documents import ModelDataset, ModelDetail
from orchestrations.contracts.comparison import Judged, SliceChange
from orchestrations.contracts.rollouts import EndpointTraffic
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import RunCost
from orchestrations.contracts.training import RunRecord, RunStep, UsedCompute
from tests.unit.orchestrations.examples import PIPELINE, run_status, with_rules

AT = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)
DEPLOYED = with_rules(
    PIPELINE,
    deploy={
        "endpoint": "digits",
        "instance_type": "Standard_DS3_v2",
        "smoke_request": "smoke.json",
        "steps": [{"traffic": 100, "bake_minutes": 0}],
    },
)
MODEL = ModelDetail(
    name="digits",
    version="2",
    stage="champion",
    run="digits-aa-2",
    dataset_version="aa",
    registered_at=AT,
    metrics={"accuracy": 0.9},
    compared_with="1",
    gain=0.1,
    in_service_since=None,
    rolled_back_at=None,
    pipeline="digits",
    endpoint="digits",
    path="azureml://model",
    dataset=ModelDataset.model_validate(
        {
            "version": "aa",
            "blobs": 1797,
            "bytes": 52_000,
            "frozen_at": AT,
            "partition": None,
            "manifest_path": "m/aa",
        }
    ),
    job="jobs/digits-aa-2",
    code=None,
    results=None,
    reason="drift <script>alert(1)</script> | of [labels](http://x)",
    difference="12 files added",
    parameters={"seed": 7},
    configuration="cc",
    approvals={},
    redriven_from=None,
    rolls_back_to="1",
)
JUDGED = Judged(
    verdict="better",
    message="accuracy 0.9: better than champion 1 by 10 points, p = 0.003, 1,000 samples",
    metric="accuracy",
    unit="points",
    samples=1000,
    lead=0.1,
    error=0.01,
    p=0.003,
    slices=(SliceChange(name="label:7", samples=41, lead=-0.021, error=0.03, p=0.4),),
)


def run(attempt: int, state: RunState, *, amount: float | None = None) -> RunRecord:
    cost = None
    if amount is not None:
        cost = RunCost(
            queue="q",
            flavor="f",
            nodes=2,
            node_seconds=7200,
            price_per_node_hour=amount / 2,
            amount=amount,
            currency="EUR",
        )
    return RunRecord(
        status=run_status(f"digits-aa-{attempt}", state, AT + timedelta(hours=1)),
        started_at=AT + timedelta(minutes=attempt),
        steps=(RunStep(state="running", began_at=AT),),
        compute=UsedCompute(cluster="gpu", size="Standard_NC6s_v3", priority="dedicated", nodes=2),
        cost=cost,
        judged=JUDGED if state == "succeeded" else None,
    )


def facts(*runs: RunRecord, actions: tuple[Action, ...] = ()) -> Facts:
    return Facts(
        model=MODEL,
        pipeline=DEPLOYED,
        runs=runs,
        job={"command": "python train.py", "environment": "azureml:torch:3"},
        rollouts=[],
        traffic=EndpointTraffic(traffic={"model-2": 100}),
        actions=actions,
    )


def test_a_card_tells_where_a_model_is_from_and_what_it_took() -> None:
    told = tell(facts(run(1, "failed", amount=3.0), run(2, "succeeded", amount=4.0)))
    for line in (
        "# digits:2",
        "- [picture of the pipeline over time](/api/ui#/pipelines/digits)",
        "- files: 1,797 \\(52,000 bytes\\)",
        "- difference: 12 files added",
        "- parameters: seed = 7",
        "- environment: azureml:torch:3",
        "- compute: 2 nodes of Standard\\_NC6s\\_v3 \\(dedicated\\), cluster gpu",
        "| label:7 | -2.1 points | 3 | 0.4 | 41 | kept |",
        "| digits-aa-1 | failed | 2.00 | 3.00 EUR |  |",
        "Together 4.00 node-hours of training, 7.00 EUR.",
        "Traffic of online endpoint digits now: model-2 100 %.",
        "Nobody: the gate and the rollout decided by their rules.",
    ):
        assert line in told.splitlines(), (line, told)


def test_a_card_says_what_is_not_known() -> None:
    told = tell(facts(run(1, "failed")))
    assert "Together 2.00 node-hours of training; no price is known." in told
    assert "how certain the lead is, is not known" in told
    assert "- compute: not known" in told
    partly = tell(facts(run(1, "failed"), run(2, "succeeded", amount=4.0)))
    assert "4.00 EUR for 1 of 2 runs." in partly


def test_texts_of_people_are_no_markup() -> None:
    action = Action(
        at=AT, action="promote", on="model digits:2", by="<b>ada", reason="a\n| b", outcome="`x`"
    )
    told = tell(facts(run(2, "succeeded"), actions=(action,)))
    assert "drift \\<script\\>alert\\(1\\)\\</script\\> \\| of \\[labels\\]\\(http://x\\)" in told
    row = "| 2026-11-28 09:30 UTC | \\<b\\>ada | promote | model digits:2 | a \\| b | \\`x\\` |"
    assert row in told.splitlines()
