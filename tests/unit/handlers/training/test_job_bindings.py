from __future__ import annotations

from typing import Any

import pytest

from handlers.training.champions import Champion
from handlers.training.jobs import Bindings
from orchestrations.contracts.datasets import DataAsset
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import Capacity, SubmitJob
from tests.unit.orchestrations.examples import DATASET, run_request


def merged(
    request: RunRequest, kind: str = "command", champion: Champion | None = None, **document: Any
) -> dict[str, Any]:
    bindings = Bindings(
        request=SubmitJob(
            run=f"digits-{DATASET.version}-{request.attempt}",
            request=request,
            capacity=Capacity(cluster="spot", nodes=2),
            asset=DataAsset(name="digits", version=DATASET.version),
        ),
        champion=champion,
        default_datastore="d",
        records_datastore="landfall",
    )
    return {
        key: value
        for override in bindings.overrides({"type": kind, **document})
        for key, value in override.items()
    }


def test_all_attempts_share_the_checkpoints_and_nothing_else() -> None:
    first, second = merged(run_request(1)), merged(run_request(2))
    assert first["outputs.checkpoints"] == second["outputs.checkpoints"]
    assert first["outputs.results"]["path"] != second["outputs.results"]["path"]


def test_a_job_reads_the_copies_where_blobs_are_copied() -> None:
    copied = DATASET.model_copy(update={"copies": "frozen/digits/"})
    bound = merged(run_request().model_copy(update={"dataset": copied}))
    assert bound["inputs.data"]["path"] == "azureml://datastores/landfall/paths/frozen/digits/"


def test_a_pipeline_that_declares_nothing_is_given_a_name_and_compute_only() -> None:
    assert set(merged(run_request(), "pipeline")) == {
        "name",
        "experiment_name",
        "settings.default_compute",
    }


@pytest.mark.parametrize("kind", ["command", "sweep", "pipeline"])
def test_type_and_path_are_landfalls_and_all_other_keys_stand(kind: str) -> None:
    theirs = {"mode": "download", "path_on_compute": "/data", "path": "azureml:x:1", "type": "y"}
    bound = merged(run_request(), kind, inputs={"data": theirs}, outputs={"results": theirs})
    for key in ("inputs.data", "outputs.results"):
        assert (bound[key]["mode"], bound[key]["path_on_compute"]) == ("download", "/data")
        assert bound[key]["type"] == "uri_folder"
        # Each trial of a sweep writes to a default path of its own.
        is_default = (kind, key) == ("sweep", "outputs.results")
        assert bound[key].get("path") != "azureml:x:1"
        assert ("path" not in bound[key]) == is_default


def test_parameters_are_inputs() -> None:
    request = run_request().model_copy(update={"parameters": {"seed": 8}})
    assert merged(request, inputs={"seed": 0})["inputs.seed"] == 8
    assert merged(request, "pipeline", inputs={"seed": 0})["inputs.seed"] == 8


def test_without_a_champion_the_input_is_a_literal_whatever_its_mode() -> None:
    inputs = {"champion": {"type": "custom_model", "mode": "download"}}
    assert merged(run_request(), inputs=inputs)["inputs.champion"] == "none"
