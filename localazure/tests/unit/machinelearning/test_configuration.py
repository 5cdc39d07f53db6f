from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localazure.machinelearning.configuration import Configuration, InvalidConfigurationError

REPOSITORY = Path(__file__).parents[4]


def test_the_app_s_own_file_is_valid() -> None:
    configuration = Configuration.read(REPOSITORY / "infra" / "local" / "azure-ml.json")
    assert configuration.datastores == {
        "workspaceblobstore": "azureml-blobstore",
        "workspaceartifactstore": "azureml",
        "landing": "landing",
        "landfall": "landfall",
    }


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    assert Configuration.read(tmp_path / "azure-ml.json") == Configuration()


def test_quota_is_by_size_in_any_case() -> None:
    parsed = Configuration.parse(
        {"quota": {"Standard_NC6": 2}, "provisioningSeconds": 0}, origin="f"
    )
    assert (parsed.quota, parsed.provisioning_seconds) == ({"standard_nc6": 2}, 0)


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"datastore": []}, "unknown key 'datastore'"),
        ({"datastores": {}}, "datastores must be a list"),
        ({"datastores": [{"name": "a"}]}, r"datastores\[0\]"),
        ({"datastores": [{"name": "a", "containerName": "b", "x": 1}]}, r"datastores\[0\]"),
        (
            {"datastores": [{"name": "workspaceblobstore", "containerName": "b"}]},
            "'workspaceblobstore' is taken",
        ),
        ({"quota": {"a": -1}}, r"quota\['a'\] is -1"),
        ({"quota": {"a": True}}, r"quota\['a'\]"),
        ({"provisioningSeconds": "2"}, "provisioningSeconds is '2'"),
    ],
)
def test_errors_name_file_key_and_value(document: dict[str, Any], names: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"azure-ml.json.*{names}"):
        Configuration.parse(document, origin="azure-ml.json")


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    file = tmp_path / "azure-ml.json"
    file.write_text("{")
    with pytest.raises(InvalidConfigurationError, match=r"azure-ml\.json is not JSON"):
        Configuration.read(file)
