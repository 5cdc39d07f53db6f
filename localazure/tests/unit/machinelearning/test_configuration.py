from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localazure.errors import ConfigurationError
from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.configuration import Configuration

REPOSITORY = Path(__file__).parents[4]


def test_the_app_s_own_file_is_valid() -> None:
    configuration = Configuration.read(REPOSITORY / "infra" / "local" / "azure-ml.json")
    assert configuration.datastores == {
        "workspaceblobstore": BlobPath("azureml-blobstore", "", "landfallml"),
        "workspaceartifactstore": BlobPath("azureml", "", "landfallml"),
        "landing": BlobPath("landing", "", "landfalldata"),
        "landfall": BlobPath("landfall", "", "landfalldata"),
    }


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    assert Configuration.read(tmp_path / "azure-ml.json") == Configuration()


def read(folder: Path, document: dict[str, Any]) -> Configuration:
    file = folder / "azure-ml.json"
    file.write_text(json.dumps(document, indent=1))
    return Configuration.read(file)


def test_quota_is_by_size_in_any_case(tmp_path: Path) -> None:
    parsed = read(tmp_path, {"quota": {"Standard_NC6": 2}, "provisioningSeconds": 0})
    assert (parsed.quota, parsed.provisioning_seconds) == ({"standard_nc6": 2}, 0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"datastore": []}, ":2: datastore: unknown key"),
        ({"datastores": {}}, ":2: datastores: .*tuple, found {}"),
        ({"datastores": [{"name": "a"}]}, r":3: datastores\[0\]: 'containerName' is missing"),
        (
            {"datastores": [{"name": "a", "containerName": "b", "x": 1}]},
            r":6: datastores\[0\].x: unknown key",
        ),
        (
            {"datastores": [{"name": "workspaceblobstore", "containerName": "b"}]},
            r":4: datastores\[0\].name: this name is taken, found \"workspaceblobstore\"",
        ),
        ({"totalLowPriorityCores": -1}, r":2: totalLowPriorityCores: .*or equal to 0, found -1"),
        ({"quota": {"a": -1}}, r":3: quota.a: .*greater than or equal to 0, found -1"),
        ({"quota": {"a": True}}, r":3: quota.a: .*integer, found true"),
        ({"mlflowServerPort": 0}, r":2: mlflowServerPort: .*equal to 1, found 0"),
        ({"environments": "yes"}, r":2: environments: .*'build', found \"yes\""),
        ({"provisioningSeconds": "2"}, ':2: provisioningSeconds: .*number, found "2"'),
        ({"provisioningSeconds": True}, ":2: provisioningSeconds: .*number, found true"),
    ],
)
def test_errors_name_file_line_key_and_value(
    tmp_path: Path, document: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"azure-ml.json{message}"):
        read(tmp_path, document)
