from __future__ import annotations

import pytest

from handlers.azure_ml.data_assets import register_dataset
from orchestrations.contracts.datasets import RegisterDataset
from orchestrations.errors import JobRejected
from tests.local.handlers.azure_ml.conftest import Cloud
from tests.unit.orchestrations.examples import DATASET, PIPELINE

REQUEST = RegisterDataset(pipeline=PIPELINE, dataset=DATASET)


def test_registers_once_and_adopts_after_that(cloud: Cloud) -> None:
    first = register_dataset(cloud.clients, REQUEST)
    assert register_dataset(cloud.clients, REQUEST) == first
    asset = cloud.clients.ml.data.get(first.name, first.version)
    assert asset.type == "mltable"
    assert str(asset.path).endswith(f"datastores/landfall/paths/{DATASET.manifest_path}/")
    assert asset.tags == {"landfall.pipeline": "digits"}
    assert asset.properties["landfall.blobs"] == "3"


def test_a_version_that_is_another_folder_is_refused(cloud: Cloud) -> None:
    register_dataset(cloud.clients, REQUEST)
    elsewhere = DATASET.model_copy(update={"manifest_path": "manifests/other/0"})
    with pytest.raises(JobRejected, match="exists already"):
        register_dataset(cloud.clients, REQUEST.model_copy(update={"dataset": elsewhere}))
