from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from azure.ai.ml.operations import DataOperations

from handlers.training.data_assets import manifest_uri, register_dataset, same_folder
from orchestrations.contracts.datasets import DataAsset, RegisterDataset
from orchestrations.errors import JobRejected
from tests.unit.handlers.azure_ml_fake import World, make_world
from tests.unit.orchestrations.examples import DATASET, PIPELINE

REQUEST = RegisterDataset(pipeline=PIPELINE, dataset=DATASET)
KEY = ("digits", DATASET.version)
FOLDER = f"datastores/landfall/paths/{DATASET.manifest_path}"


def asset_at(path: str) -> Any:
    return SimpleNamespace(name=KEY[0], version=KEY[1], path=path)


def test_registers_the_manifests_folder_as_mltable() -> None:
    world = make_world({"RECORDS_DATASTORE": "other"})
    assert register_dataset(world.clients, REQUEST) == DataAsset(name=KEY[0], version=KEY[1])
    asset = world.workspace.data.get(*KEY)
    path = f"azureml://datastores/other/paths/{DATASET.manifest_path}/"
    assert (asset.type, asset.path) == ("mltable", path)
    assert asset.tags == {"landfall.pipeline": "digits"}
    assert asset.properties == {
        "landfall.blobs": "3",
        "landfall.bytes": "300",
        "landfall.frozen-at": "2026-11-21T09:30:00+00:00",
    }


def test_adopts_what_the_service_names_in_its_long_form(world: World) -> None:
    path = f"azureml://subscriptions/s/resourcegroups/r/workspaces/w/{FOLDER}"
    world.workspace.data.store[KEY] = asset_at(path)
    register_dataset(world.clients, REQUEST)
    assert world.workspace.data.created == 0


def test_a_crash_after_the_creation_finds_the_asset(world: World) -> None:
    world.workspace.data.die_after_next()
    with pytest.raises(KeyboardInterrupt):
        register_dataset(world.clients, REQUEST)
    assert register_dataset(world.clients, REQUEST).version == DATASET.version
    assert world.workspace.data.created == 0


def test_two_at_once_end_in_one_asset(world: World) -> None:
    world.workspace.data.create_before_next(asset_at(f"azureml://{FOLDER}"))
    assert register_dataset(world.clients, REQUEST).version == DATASET.version


def test_a_version_that_is_another_folder_is_refused_by_name(world: World) -> None:
    world.workspace.data.store[KEY] = asset_at("azureml://datastores/landfall/paths/elsewhere")
    with pytest.raises(JobRejected, match=r"digits:0123456789abcdef exists already .*elsewhere"):
        register_dataset(world.clients, REQUEST)


def test_a_refusal_is_permanent_and_a_fault_is_not(world: World) -> None:
    world.workspace.data.refuse_next(400, "no")
    world.workspace.data.refuse_next(503, "no")
    with pytest.raises(JobRejected):
        register_dataset(world.clients, REQUEST)
    with pytest.raises(Exception, match="no") as raised:
        register_dataset(world.clients, REQUEST)
    assert not isinstance(raised.value, JobRejected)


def test_the_sdk_still_validates_where_it_is_told_not_to() -> None:
    assert inspect.signature(DataOperations._validate).parameters.keys() == {"self", "data"}  # pyright: ignore[reportPrivateUsage] - what is counted on


def test_folders_are_told_apart() -> None:
    assert same_folder(manifest_uri("a", "/x/y/"), "azureml://datastores/a/paths/x/y")
    assert not same_folder(manifest_uri("a", "x/y"), manifest_uri("b", "x/y"))
    assert not same_folder(manifest_uri("a", "x/y"), manifest_uri("a", "x/yz"))
