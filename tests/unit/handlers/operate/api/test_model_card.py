"""The Markdown of a model card."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handlers.operate.api.actions import Action
from handlers.operate.api.model_card import Facts, tell
from handlers.operate.api.model_documents import ModelDataset, ModelDetail
from orchestrations.configuration.queues import Queues
from orchestrations.contracts.comparison import Judged, SliceChange
from orchestrations.contracts.rollouts import EndpointTraffic, RolloutState, RolloutStatus
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import RunCost
from orchestrations.contracts.training import RunRecord, RunStep, UsedCompute
from tests.unit.handlers.platform.test_spans import rollout_status
from tests.unit.orchestrations.examples import PIPELINE, run_status, with_rules

AT = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)
DEPLOYED = with_rules(
    PIPELINE,
    deploy={
        "endpoint": "digits",
        "instance_type": "Standard_DS3_v2",
        "instance_count": 2,
        "smoke_request": "smoke.json",
        "steps": [{"traffic": 100, "bake_minutes": 0}],
    },
)
PRICES = Queues.model_validate(
    {
        "currency": "EUR",
        "prices": [{"size": "standard_ds3_v2", "price_per_node_hour": 2}],
    }
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
    environment="azureml:torch:3",
    compute=None,
    cost=None,
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


def trial(
    attempt: int, end: RolloutState | None, hours: float | None
) -> tuple[RolloutStatus, RolloutState | None, timedelta | None]:
    """A rollout, how it ended, and how long its deployment was on trial."""
    asked = rollout_status("waiting").model_copy(update={"id": f"rollout-digits-2-{attempt}"})
    return asked, end, None if hours is None else timedelta(hours=hours)


def facts(
    *runs: RunRecord,
    actions: tuple[Action, ...] = (),
    rollouts: Sequence[tuple[RolloutStatus, RolloutState | None, timedelta | None]] = (),
    queues: Queues = PRICES,
) -> Facts:
    return Facts(
        model=MODEL,
        pipeline=DEPLOYED,
        runs=runs,
        job={"command": "python train.py", "environment": "azureml:torch:3"},
        rollouts=rollouts,
        queues=queues,
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


def test_a_card_tells_what_its_rollouts_took() -> None:
    rollouts = [trial(3, None, 0.5), trial(2, "rolled_back", 1.25), trial(1, "failed", None)]
    told = tell(facts(run(1, "succeeded"), rollouts=rollouts))
    where = "2 x Standard\\_DS3\\_v2, test and bake"
    for line in (
        "| rollout-digits-2-3 | model-7 | has not ended | 2026-11-22 00:00 UTC |",
        f"| rollout-digits-2-3 | live | 1.00 | 2.00 EUR | {where} |",
        f"| rollout-digits-2-2 | rolled\\_back | 2.50 | 5.00 EUR | {where} |",
        "| rollout-digits-2-1 | failed | not known | not known | no begin or no end is recorded |",
        "Together 3.50 node-hours of test and bake for 2 of 3 rollouts, 7.00 EUR.",
    ):
        assert line in told.splitlines(), (line, told)
    unpriced = tell(facts(rollouts=rollouts[:1], queues=Queues()))
    assert "No run of this dataset version is recorded." in unpriced
    assert "Together 1.00 node-hours of test and bake; no price is known." in unpriced


POWER: dict[str, Any] = {
    "power_usage_effectiveness": 1.2,
    "grams_co2e_per_kwh": 350,
    "prices": [
        {"size": "Standard_NC6s_v3", "price_per_node_hour": 3, "watts": 400},
        {"size": "Standard_DS3_v2", "price_per_node_hour": 2, "watts": 100},
    ],
}


def test_energy_and_carbon_count_what_lost_or_failed_and_name_their_numbers() -> None:
    ran = (run(1, "failed"), run(2, "not_promoted"), run(3, "succeeded"))
    rollouts = [trial(2, "finished", 1), trial(1, "rolled_back", 1.5)]
    told = tell(facts(*ran, rollouts=rollouts, queues=Queues.model_validate(POWER)))
    for line in (
        "- energy of Standard_DS3_v2 (dedicated): 5.00 node-hours x 100 W x 1.2 = 0.600 kWh",
        "- energy of Standard_NC6s_v3 (dedicated): 6.00 node-hours x 400 W x 1.2 = 2.880 kWh",
        "- carbon: 3.480 kWh x 350 g CO2e per kWh = 1,218 g CO2e",
    ):
        assert line in told.replace("\\", "").splitlines(), (line, told)
    assert "https://arxiv.org/abs/1910.09700" in told


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prices": []}, "queues.yml gives no watts of Standard_NC6s_v3 (dedicated)"),
        ({"prices": []}, "carbon: not known: no energy is known"),
        ({"prices": POWER["prices"][1:]}, "= 84 g CO2e for 1 of 2 VM sizes"),
        ({"power_usage_effectiveness": None}, "queues.yml gives no power_usage_effectiveness"),
        ({"grams_co2e_per_kwh": None}, "carbon: not known: queues.yml gives no grams_co2e_per_kwh"),
    ],
)
def test_energy_and_carbon_say_what_is_not_configured(changes: dict[str, Any], words: str) -> None:
    queues = Queues.model_validate({**POWER, **changes})
    told = tell(facts(run(1, "failed"), rollouts=[trial(1, "failed", 1)], queues=queues))
    assert words in told.replace("\\", "")


def test_texts_of_people_are_no_markup() -> None:
    action = Action(
        at=AT, action="promote", on="model digits:2", by="<b>ada", reason="a\n| b", outcome="`x`"
    )
    told = tell(facts(run(2, "succeeded"), actions=(action,)))
    assert "drift \\<script\\>alert\\(1\\)\\</script\\> \\| of \\[labels\\]\\(http://x\\)" in told
    row = "| 2026-11-28 09:30 UTC | \\<b\\>ada | promote | model digits:2 | a \\| b | \\`x\\` |"
    assert row in told.splitlines()
