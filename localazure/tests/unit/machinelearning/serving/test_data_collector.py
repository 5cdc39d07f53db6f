from __future__ import annotations

from datetime import UTC, datetime

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.serving.data_collector import DataCollector, collector_settings
from localazure.machinelearning.serving.store import Deployment, DeploymentState
from localazure.machinelearning.workspace import Workspace

MOMENT = datetime(2026, 11, 3, 7, 5, 9, tzinfo=UTC)


def test_without_a_data_collector_nothing_is_collected() -> None:
    assert collector_settings({}).sampling_rates == {}
    assert collector_settings({"dataCollector": None}).sampling_rates == {}


def test_collections_that_are_enabled_are_sampled_at_their_rate() -> None:
    collections = {
        "request": {"dataCollectionMode": "Enabled", "samplingRate": 0.25},
        "response": {"dataCollectionMode": "enabled"},
        "model_inputs": {"dataCollectionMode": "Enabled", "samplingRate": 0},
        "model_outputs": {"dataCollectionMode": "disabled"},
    }
    found = collector_settings({"dataCollector": {"collections": collections}})
    assert found.sampling_rates == {"request": 0.25, "response": 1.0, "model_inputs": 0.0}


@pytest.mark.parametrize(
    ("rate", "folder"),
    [(None, "2026/11/03/07"), ("Minute", "2026/11/03/07/05"), ("day", "2026/11/03")],
)
def test_the_rolling_rate_is_the_interval_between_new_folders(
    rate: str | None, folder: str
) -> None:
    found = collector_settings({"dataCollector": {"rollingRate": rate, "collections": {}}})
    assert found.folder_at(MOMENT) == folder


def test_an_unknown_rolling_rate_is_refused() -> None:
    with pytest.raises(ArmError, match="second"):
        collector_settings({"dataCollector": {"rollingRate": "second", "collections": {}}})


async def test_data_for_a_missing_asset_is_dropped_and_the_score_is_returned(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    data_id = f"{workspace.id}/data/missing/versions/1"
    collections = {"response": {"dataCollectionMode": "Enabled", "dataId": data_id}}
    deployment = Deployment(
        endpoint="shop",
        name="blue",
        document={"properties": {"dataCollector": {"collections": collections}}},
        generation=1,
        state=DeploymentState.SUCCEEDED,
        error_code="",
        error_message="",
        created_at=0,
        modified_at=0,
    )
    async with DataCollector(workspace) as collector:
        collector.collect_payload(deployment, "/score", b"{}", b"{}", draw=0)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("deployment shop/blue: collected data is dropped: data 'missing:1'")
