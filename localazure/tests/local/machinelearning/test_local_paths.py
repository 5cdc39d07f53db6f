"""Files of this machine as data, models and build contexts; downloads; changes of metadata."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from azure.ai.ml import Input, Output, command
from azure.ai.ml.entities import BuildContext, Data, Environment, Model

from harness.local_workspace import SDK_WARNINGS, Local

pytestmark = [
    SDK_WARNINGS,
    # azure-ai-ml's downloads call azure-storage-blob in a deprecated way.
    pytest.mark.filterwarnings("ignore:The use of a 'BlobProperties':DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:content_as_bytes is deprecated:DeprecationWarning"),
]

COPY = "cp -r ${{inputs.given}} ${{outputs.copy}}/"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "digits"
    (found / "7").mkdir(parents=True)
    (found / "7" / "a.txt").write_text("seven")
    (found / "b.txt").write_text("top")
    return found


def run(local: Local, name: str, text: str, **fields: Any) -> None:
    job = command(name=name, command=text, environment="azureml:torch:1", **fields)
    local.ml.jobs.create_or_update(job)
    local.wait_for(name, "Completed")


def test_a_folder_is_the_input_of_a_job(local: Local, folder: Path) -> None:
    run(
        local,
        "local-folder",
        COPY,
        inputs={"given": Input(type="uri_folder", path=str(folder))},
        outputs={"copy": Output()},
    )
    copied = local.list_blobs("azureml-blobstore", "azureml/local-folder/copy/")
    assert sorted(name.split("/", 1)[1] for name in copied) == ["7/a.txt", "b.txt"]


def test_a_file_is_the_input_of_a_job(local: Local, folder: Path) -> None:
    run(
        local,
        "local-file",
        COPY,
        inputs={"given": Input(type="uri_file", path=str(folder / "7" / "a.txt"))},
        outputs={"copy": Output()},
    )
    assert local.read_blob("azureml-blobstore", "azureml/local-file/copy/a.txt") == b"seven"


@pytest.mark.parametrize("kind", ["uri_folder", "uri_file", "mltable"])
def test_data_of_this_machine_is_registered(local: Local, folder: Path, kind: str) -> None:
    path = folder / "b.txt" if kind == "uri_file" else folder
    if kind == "mltable":
        (folder / "MLTable").write_text("paths:\n  - folder: ./\n")
    # The SDK validates an MLTable by a schema from the internet, and tries that for a minute.
    asset = Data(name=f"mine-{kind}", type=kind, path=str(path), skip_validation=True)
    data = local.ml.data.create_or_update(asset)
    assert (data.version, data.type) == ("1", kind)
    run(
        local,
        f"reads-{kind.replace('_', '-')}",
        f"cat {'${{inputs.given}}' if kind == 'uri_file' else '${{inputs.given}}/b.txt'} "
        "> ${{outputs.copy}}/b",
        inputs={"given": Input(type=kind, path=f"azureml:mine-{kind}:1")},
        outputs={"copy": Output()},
    )
    name = f"azureml/reads-{kind.replace('_', '-')}/copy/b"
    assert local.read_blob("azureml-blobstore", name) == b"top"


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
        job = command(
            name="public-absent",
            command=COPY,
            environment="azureml:torch:1",
            inputs={"given": Input(type="uri_file", path=f"{url}/absent.txt")},
            outputs={"copy": Output()},
        )
        local.ml.jobs.create_or_update(job)
        local.wait_for("public-absent", "Failed")
        server.shutdown()
    assert local.read_blob("azureml-blobstore", "azureml/public-file/copy/a.txt") == b"seven"


def test_a_build_context_is_uploaded_and_recorded(local: Local, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM python\n")
    made = local.ml.environments.create_or_update(
        Environment(name="built", version="1", build=BuildContext(path=str(context)))
    )
    assert "/azureml-blobstore/LocalUpload/" in made.build.path


def test_logs_and_outputs_are_downloaded(local: Local, tmp_path: Path) -> None:
    run(
        local,
        "downloaded",
        "echo said; mkdir -p outputs; echo 1 > outputs/kept; echo 2 > ${{outputs.own}}/two; "
        "echo 3 > ${{outputs.placed}}/three",
        outputs={
            "own": Output(),
            "placed": Output(path="azureml://datastores/landing/paths/placed/"),
        },
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


def test_metadata_of_a_job_changes(local: Local) -> None:
    run(local, "changing", "true", tags={"a": "1"})
    changed = local.ml.jobs.update("changing", tags={"b": "2"}, display_name="Named")
    assert (changed.tags, changed.display_name) == ({"a": "1", "b": "2"}, "Named")
    local.ml.jobs.archive("changing")
    assert "changing" not in [job.name for job in local.ml.jobs.list()]
    local.ml.jobs.restore("changing")
    assert "changing" in [job.name for job in local.ml.jobs.list()]
