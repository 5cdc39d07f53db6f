"""Local files as data and models; downloads; changes of metadata."""

from __future__ import annotations

import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from azure.ai.ml import Input, Output
from azure.ai.ml.entities import Data, Model

from harness.local_workspace import Local

COPY = "cp -r ${{inputs.given}} ${{outputs.copy}}/"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "digits"
    (found / "7").mkdir(parents=True)
    (found / "7" / "a.txt").write_text("seven")
    (found / "b.txt").write_text("top")
    return found


def no_schema(_url: str) -> None:
    """Skip the SDK's request to the internet for MLTable's schema, which takes seconds."""


def run(local: Local, name: str, text: str, **fields: Any) -> None:
    local.submit(name, text, **fields)
    local.wait_for(name, "Completed")


def test_paths_and_registered_data_of_this_machine_are_inputs(
    local: Local, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = folder.with_name("table")
    shutil.copytree(folder, table)
    (table / "MLTable").write_text("paths:\n  - folder: ./\n")
    monkeypatch.setattr(local.ml.data, "_try_get_mltable_metadata_jsonschema", no_schema)
    paths = {"uri_folder": folder, "uri_file": folder / "b.txt", "mltable": table}
    for kind, path in paths.items():
        asset = Data(name=f"mine-{kind}", type=kind, path=str(path), skip_validation=True)
        data = local.ml.data.create_or_update(asset)
        assert (data.version, data.type) == ("1", kind)
    run(
        local,
        "local-inputs",
        "cp -r ${{inputs.folder}} ${{outputs.copy}}/folder; cp ${{inputs.file}} ${{outputs.copy}}; "
        "cp ${{inputs.uri_folder}}/b.txt ${{outputs.copy}}/1; cp ${{inputs.uri_file}} "
        "${{outputs.copy}}/2; cp ${{inputs.mltable}}/b.txt ${{outputs.copy}}/3",
        inputs={
            "folder": Input(type="uri_folder", path=str(folder)),
            "file": Input(type="uri_file", path=str(folder / "7" / "a.txt")),
            **{kind: Input(type=kind, path=f"azureml:mine-{kind}:1") for kind in paths},
        },
        outputs={"copy": Output()},
    )
    copy = "azureml/local-inputs/copy/"
    names = ["1", "2", "3", "a.txt", "folder/7/a.txt", "folder/b.txt"]
    assert local.list_blobs("azureml-blobstore", copy) == names
    assert local.read_blob("azureml-blobstore", f"{copy}a.txt") == b"seven"
    for number in range(1, 4):
        assert local.read_blob("azureml-blobstore", f"{copy}{number}") == b"top"


@pytest.mark.parametrize("kind", ["custom_model", "mlflow_model"])
def test_a_model_comes_from_this_machine_or_from_a_job(
    local: Local, folder: Path, tmp_path: Path, kind: str
) -> None:
    (folder / "MLmodel").write_text("flavors: {}\n")
    name = kind.replace("_", "-")
    model = local.ml.models.create_or_update(Model(name=name, type=kind, path=str(folder)))
    assert (model.version, model.type) == ("1", kind)
    run(
        local,
        f"makes-{name}",
        "mkdir ${{outputs.model}}/m && cp ${{inputs.old}}/MLmodel ${{outputs.model}}/m/",
        inputs={"old": Input(type=kind, path=f"azureml:{name}:1")},
        outputs={"model": Output(type=kind)},
    )
    path = f"azureml://jobs/makes-{name}/outputs/model/paths/m/"
    made = local.ml.models.create_or_update(Model(name=name, type=kind, path=path))
    assert made.version == "2"
    local.ml.models.download(name, "1", download_path=str(tmp_path / "down"))
    assert [each.name for each in (tmp_path / "down").rglob("MLmodel")] == ["MLmodel"]


def test_a_public_file_is_the_input_of_a_job(local: Local, folder: Path) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        run(
            local,
            "public-file",
            COPY,
            inputs={"given": Input(type="uri_file", path=f"{url}/7/a.txt")},
            outputs={"copy": Output()},
        )
        absent = Input(type="uri_file", path=f"{url}/absent.txt")
        local.submit("public-absent", COPY, inputs={"given": absent}, outputs={"copy": Output()})
        local.wait_for("public-absent", "Failed")
        server.shutdown()
    assert local.read_blob("azureml-blobstore", "azureml/public-file/copy/a.txt") == b"seven"


def test_logs_and_outputs_are_downloaded_and_metadata_changes(local: Local, tmp_path: Path) -> None:
    run(
        local,
        "downloaded",
        "echo said; mkdir -p outputs; echo 1 > outputs/kept; echo 2 > ${{outputs.own}}/two; "
        "echo 3 > ${{outputs.placed}}/three",
        outputs={
            "own": Output(),
            "placed": Output(path="azureml://datastores/landing/paths/placed/"),
        },
        tags={"a": "1"},
    )
    local.ml.jobs.download("downloaded", download_path=tmp_path, all=True)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found >= {
        "artifacts/outputs/kept",
        "artifacts/user_logs/std_log.txt",
        "named-outputs/own/two",
        "named-outputs/placed/three",
    }
    assert (tmp_path / "artifacts/user_logs/std_log.txt").read_text() == "said\n"
    changed = local.ml.jobs.update("downloaded", tags={"b": "2"}, display_name="Named")
    assert (changed.tags, changed.display_name) == ({"a": "1", "b": "2"}, "Named")
    local.ml.jobs.archive("downloaded")
    assert "downloaded" not in [job.name for job in local.ml.jobs.list()]
    local.ml.jobs.restore("downloaded")
    assert "downloaded" in [job.name for job in local.ml.jobs.list()]
