from __future__ import annotations

from handlers.azure_ml.data_assets import register_dataset
from orchestrations.contracts.datasets import RegisterDataset
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
