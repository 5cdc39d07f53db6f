from __future__ import annotations

import pytest

from localazure.functions.configuration import connections
from localazure.functions.configuration.storage_connection import find_endpoint
from localazure.storage_client.endpoint import Service

SECRET = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"


@pytest.mark.parametrize(
    "settings",
    [
        {"Bus": SECRET},
        {"AzureWebJobsBus": SECRET},
        {"Bus__fullyQualifiedNamespace": "name.servicebus.windows.net"},
    ],
)
async def test_a_connection_by_any_of_its_settings(settings: dict[str, str]) -> None:
    connections.check_service_bus("Bus", settings)
    async with connections.service_bus_client("Bus", settings) as client:
        expected = "127.0.0.1:1" if SECRET in settings.values() else "name.servicebus.windows.net"
        assert client.fully_qualified_namespace == expected


async def test_a_connection_that_is_not_configured_names_the_settings() -> None:
    with pytest.raises(ValueError, match="Bus__fullyQualifiedNamespace"):
        connections.check_service_bus("Bus", {"Other": SECRET, "Bus": ""})


async def test_a_malformed_connection_string_does_not_show() -> None:
    with pytest.raises(ValueError, match="onnection string") as caught:
        async with connections.service_bus_client("Bus", {"Bus": "SharedAccessKey=hidden"}):
            pass
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "pasted",
    [
        "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=hush",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hush",
        "https://a.blob.core.windows.net?sig=hush",
    ],
)
def test_a_connection_string_in_place_of_a_name_is_not_shown(pasted: str) -> None:
    for check in (
        lambda: connections.check_service_bus(pasted, {}),
        lambda: find_endpoint(pasted, Service.BLOB, {}),
    ):
        with pytest.raises(ValueError, match="must be the name of an app setting") as caught:
            check()
        assert "hush" not in str(caught.value)
