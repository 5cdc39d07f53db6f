"""The requests of azureml-fsspec and mltable; `make conformance-data` runs the packages."""

from __future__ import annotations

from typing import Any

from azure.ai.ml.entities import Data
from azure.storage.blob import BlobServiceClient
from yarl import URL

from harness.local_workspace import Local
from harness.role_table import Grant
from localazure.machinelearning.addresses import workspace_id


def ask(local: Local, path: str, status: int = 200) -> dict[str, Any]:
    service, _, rest = path.partition("/")
    answer = local.ask("GET", f"/{service}/v1.0{workspace_id(local.environment)}/{rest}")
    assert answer.status_code == status
    return answer.json()


def test_a_datastore_leads_to_its_container(local: Local) -> None:
    section = ask(local, "datastore/datastores/landing")["azureStorageSection"]
    account = section["accountName"]
    # The library forms the URL in this way.
    url = URL(f"{section['protocol']}://{account}.blob.{section['endpoint']}")
    assert url.user == f"{account}.blob.localhost"
    key = {"account_name": account, "account_key": section["credential"]}
    local.blobs.get_blob_client("landing", "data-access/a").upload_blob(b"content")
    with BlobServiceClient(str(url.with_user(None)), credential=key) as service:
        container = service.get_container_client(section["containerName"])
        assert list(container.list_blob_names(name_starts_with="data-access/")) == ["data-access/a"]
    missing = ask(local, "datastore/datastores/missing", 404)
    assert "missing" in missing["error"]["message"]


def test_a_data_asset_has_a_uri_with_its_workspace(local: Local) -> None:
    path = "azureml://datastores/landing/paths/data-access/"
    local.ml.data.create_or_update(Data(name="access", version="1", type="uri_folder", path=path))
    found = ask(local, "data/dataversion/access/versions/1")
    assert found["isV2"]
    environment = local.environment
    assert found["dataVersion"]["dataType"] == "UriFolder"
    assert found["dataVersion"]["dataUri"] == (
        f"azureml://subscriptions/{environment.subscription_id}/resourcegroups/local"
        "/workspaces/local/datastores/landing/paths/data-access/"
    )


def test_a_reader_does_not_get_the_key(local: Local, grant: Grant) -> None:
    grant("Monitoring Reader")
    ask(local, "data/dataversion/access/versions/1")
    refused = ask(local, "datastore/datastores/landing", 403)
    assert "datastores/listsecrets/action" in refused["error"]["message"]
