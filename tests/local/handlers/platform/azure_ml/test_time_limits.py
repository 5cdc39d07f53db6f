"""Azure ML accepts connections and never answers: no call, and no activity, hangs."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceRequestError, ServiceResponseError

from handlers.platform import clients as clients_module
from handlers.platform.clients import AZURE_ML_LIMITS_SECONDS, Clients
from handlers.platform.durable.activity_adapter import ActivityFault, as_function
from handlers.platform.settings import Settings
from handlers.training.jobs import get_job
from orchestrations.contracts.training import GetJob
from orchestrations.errors import TransientError
from orchestrations.platform.activities import parse_fault
from tests.local.http_server import JsonHandler, serving

CLOUD = "HungCloud"
# A hundredth of each limit that the app sets in the SDK.
SHORT = {name: limit / 100 for name, limit in AZURE_ML_LIMITS_SECONDS.items()}
# The SDK is loaded already; what is left is time that the machine is busy with others.
PATIENCE_SECONDS = 20.0


class Identity:
    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken("token", int(time.time()) + 3600)


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    """Clients of a workspace whose server never answers; only the cloud's endpoints are known."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        endpoints = {
            "name": CLOUD,
            "portal": "https://portal.example.org",
            "resourceManager": f"https://127.0.0.1:{silent.getsockname()[1]}",
            "authentication": {
                "loginEndpoint": "https://login.example.org",
                "audiences": ["https://management.example.org"],
            },
            "suffixes": {"storage": "core.example.org"},
        }

        class Metadata(JsonHandler, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, [endpoints])

        monkeypatch.setenv("AZUREML_CURRENT_CLOUD", CLOUD)
        monkeypatch.setenv("ARM_CLOUD_METADATA_URL", stack.enter_context(serving(Metadata)))
        clients = Clients(
            Settings(
                {
                    "AZUREML_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000000",
                    "AZUREML_RESOURCE_GROUP": "group",
                    "AZUREML_WORKSPACE_NAME": "workspace",
                }
            )
        )
        vars(clients)["credential"] = Identity()
        yield clients


def test_a_call_gives_up_within_its_limits(hung: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(AZURE_ML_LIMITS_SECONDS.values()) < GetJob.LIMIT_SECONDS
    monkeypatch.setattr(clients_module, "AZURE_ML_LIMITS_SECONDS", SHORT)
    started = time.monotonic()
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        get_job(hung, GetJob(job="digits-aa-1"))
    assert time.monotonic() - started < PATIENCE_SECONDS


def test_an_activity_ends_whatever_the_sdk_does(
    hung: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limits of the app, which are longer than the activity's here."""
    monkeypatch.setattr(GetJob, "LIMIT_SECONDS", 0.5)
    started = time.monotonic()
    with pytest.raises(ActivityFault) as raised:
        as_function(GetJob, get_job, hung)(GetJob(job="digits-aa-1").to_dict())
    assert time.monotonic() - started < PATIENCE_SECONDS
    fault = parse_fault(str(raised.value))
    assert (type(fault), str(fault)) == (TransientError, "activity get_job: no result within 0.5 s")
