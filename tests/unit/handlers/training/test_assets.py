from __future__ import annotations

import inspect
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.ai.ml.operations import DataOperations
from hypothesis import given
from hypothesis import strategies as st

from handlers.training.assets import (
    VERSIONS_TRIED,
    manifest_uri,
    register_dataset,
    register_model,
    same_folder,
)
from handlers.training.champions import find_champion
from handlers.training.job_outputs import read_results
from orchestrations.contracts.datasets import DataAsset, RegisterDataset
from orchestrations.contracts.runs import Redrive
from orchestrations.contracts.training import ReadResults, RegisterModel
from orchestrations.errors import JobRejected
from orchestrations.names import results_folder, results_record
from tests.fakes.azure_ml import World, a_job, make_world, refusal
from tests.unit.handlers.training.test_champions import put
from tests.unit.orchestrations.examples import DATASET, FROZEN_AT, PIPELINE

DATA = RegisterDataset(pipeline=PIPELINE, dataset=DATASET)
KEY = ("digits", DATASET.version)
FOLDER = f"datastores/landfall/paths/{DATASET.manifest_path}"
RUN = f"digits-{DATASET.version}-1"
REQUEST = RegisterModel(run=RUN, pipeline=PIPELINE, dataset=DATASET, results=results_record(RUN))
FIRST = 1


@pytest.fixture
def world() -> World:
    world = make_world()
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Completed", {"landfall.run": RUN})
    leave_results(world)
    return world


def leave_results(world: World) -> None:
    results = {"metrics": {"accuracy": 0.9, "loss": 1.0}, "error": None}
    world.records.blobs[results_record(RUN)] = json.dumps(results).encode()


def asset_at(path: str) -> Any:
    return SimpleNamespace(name=KEY[0], version=KEY[1], path=path)


def test_registers_the_manifests_folder_as_mltable() -> None:
    world = make_world({"RECORDS_DATASTORE": "other"})
    assert register_dataset(world.clients, DATA) == DataAsset(name=KEY[0], version=KEY[1])
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
    register_dataset(world.clients, DATA)
    assert world.workspace.data.created == 0


def test_a_crash_after_the_creation_finds_the_asset(world: World) -> None:
    world.workspace.data.die_after_next()
    with pytest.raises(KeyboardInterrupt):
        register_dataset(world.clients, DATA)
    assert register_dataset(world.clients, DATA).version == DATASET.version
    assert world.workspace.data.created == 0


def test_two_at_once_end_in_one_asset(world: World) -> None:
    world.workspace.data.create_before_next(asset_at(f"azureml://{FOLDER}"))
    assert register_dataset(world.clients, DATA).version == DATASET.version


def test_a_version_that_is_another_folder_is_refused_by_name(world: World) -> None:
    world.workspace.data.store[KEY] = asset_at("azureml://datastores/landfall/paths/elsewhere")
    with pytest.raises(JobRejected, match=r"digits:0123456789abcdef exists already .*elsewhere"):
        register_dataset(world.clients, DATA)


def test_a_refusal_is_permanent_and_a_fault_is_not(world: World) -> None:
    world.workspace.data.refuse_next(400, "no")
    world.workspace.data.refuse_next(503, "no")
    with pytest.raises(JobRejected):
        register_dataset(world.clients, DATA)
    with pytest.raises(Exception, match="no") as raised:
        register_dataset(world.clients, DATA)
    assert not isinstance(raised.value, JobRejected)


def test_the_sdk_still_validates_where_it_is_told_not_to() -> None:
    assert inspect.signature(DataOperations._validate).parameters.keys() == {"self", "data"}  # pyright: ignore[reportPrivateUsage] - what is counted on


def test_folders_are_told_apart() -> None:
    assert same_folder(manifest_uri("a", "/x/y/"), "azureml://datastores/a/paths/x/y")
    assert not same_folder(manifest_uri("a", "x/y"), manifest_uri("b", "x/y"))
    assert not same_folder(manifest_uri("a", "x/y"), manifest_uri("a", "x/yz"))


def test_registers_the_jobs_model_with_its_lineage(world: World) -> None:
    model = register_model(world.clients, REQUEST)
    assert (model.name, model.version) == ("digits", str(FIRST))
    assert model.path == f"azureml://jobs/{RUN}/outputs/results/paths/model/"
    kept = world.workspace.models.get("digits", str(FIRST))
    assert kept.type == "custom_model"
    assert kept.tags == {
        "landfall.run": RUN,
        "landfall.pipeline": "digits",
        "landfall.dataset-version": DATASET.version,
    }
    assert kept.properties == {
        "landfall.dataset": f"digits:{DATASET.version}",
        "landfall.job": f"/jobs/{RUN}",
        "landfall.code": "/codes/c",
        "landfall.frozen-at": FROZEN_AT.isoformat(),
        "landfall.results": results_record(RUN),
        "metrics.accuracy": "0.9",
        "metrics.loss": "1.0",
    }


def test_the_model_of_a_run_that_was_asked_for_says_why(world: World) -> None:
    reason = "digits_data_drift has failed"
    told = {"reason": reason, "difference": "5 added, 0 removed"}
    register_model(world.clients, REQUEST.model_copy(update=told))
    kept = world.workspace.models.get("digits", str(FIRST))
    assert kept.properties["landfall.reason"] == reason
    assert kept.properties["landfall.difference"] == "5 added, 0 removed"


def test_a_redriven_runs_model_says_what_was_changed(world: World) -> None:
    redrive = Redrive(
        run="digits-aa-3",
        by="ada",
        reason="out of memory",
        at=FROZEN_AT,
        compute=PIPELINE.compute[1],
        files_left_out=2,
        record="runs/digits-aa-3/redrive.json",
    )
    register_model(world.clients, REQUEST.model_copy(update={"redrive": redrive}))
    kept = world.workspace.models.get("digits", str(FIRST))
    assert kept.tags["landfall.redriven-from"] == "digits-aa-3"
    changes = {
        name.removeprefix("landfall.redrive."): value
        for name, value in kept.properties.items()
        if name.startswith("landfall.redrive.")
    }
    assert json.loads(changes.pop("compute"))["cluster"] == "dedicated"
    assert changes == {
        "run": "digits-aa-3",
        "by": "ada",
        "reason": "out of memory",
        "at": "2026-11-21T09:30:00Z",
        "files_left_out": "2",
        "record": "runs/digits-aa-3/redrive.json",
    }


@pytest.mark.parametrize("is_started_again", [False, True])
def test_a_model_that_was_written_again_since_it_was_judged_is_not_registered(
    world: World, *, is_started_again: bool
) -> None:
    container = world.clients.default_datastore.container_name
    results = world.clients.workspace_blobs.get_container_client(container)
    folder = results_folder("digits", RUN)
    for name, text in (("metrics.json", b'{"accuracy": 0.9}'), ("model/model.pt", b"judged")):
        results.upload_blob(folder + name, text, overwrite=True)
    reading = ReadResults(
        run=RUN, pipeline="digits", container=container, completed=True, metrics=[]
    )
    read_results(world.clients, reading)
    results.upload_blob(f"{folder}model/model.pt", b"judged", overwrite=True)
    if is_started_again:
        read_results(world.clients, reading)
    with pytest.raises(JobRejected, match=f"{folder}model/ were written"):
        register_model(world.clients, REQUEST)
    assert world.workspace.models.store == {}
    leave_results(world)  # as an earlier release did
    assert register_model(world.clients, REQUEST).version == "1"


def test_another_round_registers_a_version_of_its_own_once(world: World) -> None:
    first = register_model(world.clients, REQUEST)
    second = REQUEST.model_copy(update={"round": 2})
    model = register_model(world.clients, second)
    assert int(model.version) == int(first.version) + 1
    assert register_model(world.clients, second) == model
    assert register_model(world.clients, REQUEST) == first
    kept = world.workspace.models.get("digits", model.version)
    assert kept.tags["landfall.round"] == "2"


def test_another_attempt_at_the_same_dataset_adopts_too(world: World) -> None:
    first = register_model(world.clients, REQUEST)
    again = REQUEST.model_copy(update={"run": f"digits-{DATASET.version}-2"})
    assert register_model(world.clients, again) == first
    assert world.workspace.models.created == 1


@pytest.mark.parametrize(("faster", "version"), [(DATASET.version, FIRST), ("another", FIRST + 1)])
def test_two_at_once_end_in_one_version_a_dataset(world: World, faster: str, version: int) -> None:
    def other_was_faster(_: Any) -> None:
        put(world, FIRST, faster)
        raise refusal(409, "exists")

    world.workspace.models.faults.append(other_was_faster)
    assert register_model(world.clients, REQUEST).version == str(version)


def test_versions_do_not_run_on_for_ever(world: World) -> None:
    def another_was_faster(model: Any) -> None:
        put(world, model.version, "another")
        raise refusal(409, "exists")

    world.workspace.models.faults += [another_was_faster] * VERSIONS_TRIED
    with pytest.raises(JobRejected, match="registered by others"):
        register_model(world.clients, REQUEST)


def test_archived_versions_and_those_of_others_are_counted_too(world: World) -> None:
    put(world, 3, None)
    put(world, 7, "archived one")
    world.workspace.models.archived.add(("digits", "7"))
    assert register_model(world.clients, REQUEST).version == "8"


def test_a_challenger_is_tagged_and_never_the_champion(world: World) -> None:
    put(world, 1, "a")
    challenger = REQUEST.model_copy(
        update={"challenger": True, "champion": "1", "gain": -0.5, "configuration": "c0ffee"}
    )
    assert register_model(world.clients, challenger).version == "2"
    tags = world.workspace.models.get("digits", "2").tags
    assert tags["landfall.role"] == "challenger"
    assert tags["landfall.champion"] == "1"
    assert tags["landfall.gain"] == "-0.5"
    assert tags["landfall.configuration"] == "c0ffee"
    champion = find_champion(world.clients, PIPELINE)
    assert champion is not None
    assert champion.version == "1"


def test_a_model_of_a_deleted_job_is_refused(world: World) -> None:
    world.workspace.jobs.store.clear()
    with pytest.raises(JobRejected, match=f"its job {RUN} was deleted"):
        register_model(world.clients, REQUEST)


def test_a_refusal_is_permanent(world: World) -> None:
    world.workspace.models.refuse_next(400, "no such output")
    with pytest.raises(JobRejected, match="no such output"):
        register_model(world.clients, REQUEST)


@given(
    seconds=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    repeats=st.lists(st.integers(0, 7), max_size=16),
)
def test_however_often_and_in_whatever_order_one_version_a_dataset(
    seconds: list[int], repeats: list[int]
) -> None:
    world = make_world()
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Completed")
    leave_results(world)
    versions: dict[str, str] = {}
    for index in [*range(len(seconds)), *repeats]:
        if index >= len(seconds):
            continue
        dataset = DATASET.model_copy(
            update={
                "version": f"{index:016x}",
                "frozen_at": FROZEN_AT + timedelta(seconds=seconds[index]),
            }
        )
        model = register_model(world.clients, REQUEST.model_copy(update={"dataset": dataset}))
        assert versions.setdefault(dataset.version, model.version) == model.version
    assert set(versions.values()) == {str(each + 1) for each in range(len(seconds))}
    assert len(set(versions.values())) == len(versions) == world.workspace.models.created
