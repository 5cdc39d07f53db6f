from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.machinelearning.addresses import (
    Address,
    AssetVersion,
    BlobPath,
    DatastorePath,
    JobOutputPath,
    WebUrl,
    parse_asset,
    parse_compute,
    parse_uri,
)
from localazure.machinelearning.errors import ArmError

WORKSPACE = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
)


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("azureml://datastores/landing/paths/a/b/", DatastorePath("landing", "a/b")),
        (
            f"azureml:/{WORKSPACE}/datastores/landing/paths/a".replace(
                "providers/Microsoft.MachineLearningServices/", ""
            ),
            DatastorePath("landing", "a"),
        ),
        ("azureml://jobs/j/outputs/results/paths/model/", JobOutputPath("j", "results", "model")),
        ("azureml://jobs/j/outputs/results/paths/", JobOutputPath("j", "results", "")),
        ("azureml://jobs/j/outputs/results", JobOutputPath("j", "results", "")),
        ("azureml:digits:3", AssetVersion("data", "digits", "3")),
        (f"azureml:{WORKSPACE}/data/digits/versions/3", AssetVersion("data", "digits", "3")),
        (f"{WORKSPACE}/models/m/versions/1", AssetVersion("models", "m", "1")),
        ("http://127.0.0.1:10000/devstoreaccount1/c/a%20b/", BlobPath("c", "a b")),
        ("https://devstoreaccount1.blob.core.localhost:1/c/a", BlobPath("c", "a")),
        ("https://devstoreaccount1.blob.localhost@127.0.0.1:1/c/a", BlobPath("c", "a")),
        (
            "https://other.blob.core.windows.net/c/a.csv",
            WebUrl("https://other.blob.core.windows.net/c/a.csv"),
        ),
        (
            "wasbs://c@other.blob.core.windows.net/a/",
            WebUrl("https://other.blob.core.windows.net/c/a/"),
        ),
    ],
)
def test_uris(uri: str, address: Address) -> None:
    assert parse_uri(uri) == address


@pytest.mark.parametrize(
    "uri",
    [
        "azureml://datastores/landing/paths/../other",
        "azureml://datastores/landing/paths/a/./b",
        "http://127.0.0.1:10000/devstoreaccount1/c/%2e%2e/x",
        "http://127.0.0.1:10000/devstoreaccount1/",
        "azureml:digits@latest",
        "wasbs://c@a.blob.core.windows.net/../x",
        "./local",
        "",
    ],
)
def test_other_uris_are_refused(uri: str) -> None:
    with pytest.raises(ArmError) as refused:
        parse_uri(uri)
    assert refused.value.status == 400


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for start in ("", "azureml:", "azureml://datastores/d/paths/", "http://"):
        try:
            address = parse_uri(start + text)
        except ArmError:
            continue
        except ValueError:  # urlsplit: not a URL
            continue
        if isinstance(address, DatastorePath | BlobPath):
            assert ".." not in address.path.split("/")


def test_a_compute_is_named_by_its_arm_id_or_in_short() -> None:
    assert parse_compute(f"{WORKSPACE}/computes/gpu") == "gpu"
    assert parse_compute("azureml:gpu") == "gpu"
    for wrong in ("gpu", f"{WORKSPACE}/data/gpu", f"{WORKSPACE}", "local"):
        with pytest.raises(ArmError):
            parse_compute(wrong)


def test_the_short_form_is_of_the_expected_kind() -> None:
    assert parse_asset("azureml:m:2", kind="models") == AssetVersion("models", "m", "2")


def test_children_stay_in_their_folder() -> None:
    assert BlobPath("c", "").child("a") == BlobPath("c", "a")
    assert BlobPath("c", "a/").child("b") == BlobPath("c", "a/b")
