from __future__ import annotations

import pytest

from localazure.functions.configuration.storage_connection import find_endpoint
from localazure.storage_client.endpoint import Service

KEYED = (
    "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5PQ==;"
    "EndpointSuffix=core.windows.net"
)


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"Data": KEYED}, "https://acc.queue.core.windows.net"),
        ({"AzureWebJobsData": KEYED}, "https://acc.queue.core.windows.net"),
        ({"Data": f"{KEYED};QueueEndpoint=http://127.0.0.1:1/acc/;"}, "http://127.0.0.1:1/acc"),
        ({"Data": "UseDevelopmentStorage=true"}, "http://127.0.0.1:10001/devstoreaccount1"),
        ({"Data__queueServiceUri": "https://x.queue.test/"}, "https://x.queue.test"),
        ({"Data__accountName": "acc"}, "https://acc.queue.core.windows.net"),
    ],
)
def test_where_a_service_answers(settings: dict[str, str], url: str) -> None:
    assert find_endpoint("Data", Service.QUEUE, settings).url == url


def test_the_credentials_of_a_connection() -> None:
    keyed = find_endpoint("", Service.TABLE, {"AzureWebJobsStorage": KEYED})  # the default
    assert (keyed.account, keyed.key, keyed.needs_identity) == ("acc", "a2V5PQ==", False)
    text = "QueueEndpoint=https://a.queue.test;SharedAccessSignature=?sv=1&sig=b%3D"
    signed = find_endpoint("Data", Service.QUEUE, {"Data": text})
    assert (signed.sas, signed.key) == ("sv=1&sig=b%3D", None)
    settings = {"Data__serviceUri": "https://a.blob.test"}
    assert find_endpoint("Data", Service.BLOB, settings).needs_identity
    with pytest.raises(ValueError, match="Data__queueServiceUri"):
        find_endpoint("Data", Service.QUEUE, settings)


@pytest.mark.parametrize("text", ["nonsense", "AccountName=acc", "AccountKey=hidden", "a=hidden"])
def test_a_malformed_one_is_named_but_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="the app setting Data is no") as caught:
        find_endpoint("Data", Service.QUEUE, {"Data": text})
    assert "hidden" not in str(caught.value)
