from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from handlers.operate.api.documents import RunSummary
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.capacity import RequestNodes, WaitingRun
from orchestrations.contracts.datasets import DataAsset
from orchestrations.contracts.landing import LandingRequest
from orchestrations.contracts.notifications import Notification
from orchestrations.contracts.training import AwaitingNodes, Results, RunRecord
from tests.unit.orchestrations.examples import FROZEN_AT, PIPELINE, run_request, run_status

STATUS = run_status("digits-0123456789abcdef-1", "running", FROZEN_AT)
OPTIONS = list(PIPELINE.compute)
SPEED = {"schema_version": 1, "images_per_second": 812.5, "devices": 4}
CALLBACK = {"callback_url": "https://a.example/?token=1"}
RANKED = {"schema_version": 1, "options": [], "reason": None}


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        (PIPELINE, {"minimum_scaling_efficiency": 0.8}),
        (run_request(1), CALLBACK),
        (LandingRequest(pipeline="a", opened_by="request"), CALLBACK),
        (Notification(id="n", kind="started", at=FROZEN_AT, status=STATUS), CALLBACK),
        (Results(metrics={}, record="results.json"), {"speed": SPEED}),
        (RunRecord(status=STATUS, started_at=FROZEN_AT), {"speed": SPEED, "ranking": "it pays"}),
        (
            AwaitingNodes(asset=DataAsset(name="a", version="1"), since=FROZEN_AT),
            {"ranked": RANKED},
        ),
        (
            RequestNodes(run="a-1", pipeline="a", queue="q", options=OPTIONS),
            {"ranking": "it pays"},
        ),
        (
            WaitingRun(run="a-1", pipeline="a", queue="q", options=(), since=FROZEN_AT),
            {"ranking": "it pays"},
        ),
        (
            RunSummary.model_validate(
                STATUS.to_dict()
                | {"created_at": FROZEN_AT}
                | dict.fromkeys(("ended_at", "compute", "superseded_by", "next_attempt_at"))
            ),
            {"speed": SPEED},
        ),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseModel) else "",
)
def test_what_earlier_releases_wrote_is_read(document: BaseModel, fields: dict[str, Any]) -> None:
    written = document.model_dump(mode="json") | fields
    assert type(document).model_validate(written) == document


def test_other_unknown_fields_are_refused() -> None:
    class Zone(BaseModel, extra="forbid"):
        _of_earlier_releases = ignore_fields("width")

    with pytest.raises(ValidationError, match="height"):
        Zone.model_validate({"width": 1, "height": 2})
