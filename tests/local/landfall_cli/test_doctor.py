"""Findings and remedies of `landfall doctor`, for different answers of an HTTP server."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from handlers.operate.api.openapi import describe_api
from landfall_cli.__main__ import app
from tests.local.http_server import JsonHandler, serving

PIPELINE = {
    "name": "digits",
    "state": "idle",
    "sentence": "idle",
    "missing_settings": [],
    "compute_warnings": [],
    "compute_not_known": [],
}
HEALTHY: dict[str, Any] = {
    "/api/openapi.json": describe_api(),
    "/api/runs": {"runs": [], "next": None},
    "/api/dead-letters": {"dead_letters": [], "next": None},
    "/api/alarms": {"alarms": []},
    "/api/queues": {"queues": []},
    "/api/pipelines": {"pipelines": [PIPELINE]},
    "/api/pipelines/digits": {**PIPELINE, "champion_problem": None},
}
CHECKS = [
    "API",
    "storage",
    "Service Bus",
    "credentials",
    "nodes",
    "settings",
    "pipeline digits",
    "compute",
    "Azure ML",
]


class Handler(JsonHandler, BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, Any]] = HEALTHY

    def do_GET(self) -> None:
        document = self.answers[self.path.partition("?")[0]]
        if isinstance(document, list):  # answers in turn
            document = document.pop(0)
        status = document if isinstance(document, int) else 200
        self.answer(status, {"detail": "out of reach"} if status != 200 else document)


def examined(changes: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Run doctor on changed answers; return its exit code, and name → check."""
    handler = type("Changed", (Handler,), {"answers": HEALTHY | changes})
    with serving(handler) as url:
        done = CliRunner().invoke(app, ["--url", url, "--key", "k", "--json", "doctor"])
    return done.exit_code, {each["name"]: each for each in json.loads(done.output)["checks"]}


def test_in_a_healthy_app_every_check_is_good() -> None:
    code, checks = examined({})
    assert code == 0
    assert list(checks) == CHECKS
    assert {(each["verdict"], each["remedy"]) for each in checks.values()} == {("good", None)}


ALARM = {"kind": "credential-expires", "about": "kv/secret/watch", "message": "expires at noon"}


@pytest.mark.parametrize(
    ("changes", "name", "finding", "remedy"),
    [
        ({"/api/openapi.json": {"paths": {}}}, "API", "lacks cancel_run", "Deploy the release"),
        ({"/api/runs": 503}, "storage", "out of reach", "Storage Blob Data Reader on landing"),
        (
            {"/api/dead-letters": 502},
            "Service Bus",
            "out of reach",
            "Service Bus Data Owner on serviceBus",
        ),
        (
            {"/api/dead-letters": {"dead_letters": [{}, {}], "next": "more"}},
            "Service Bus",
            "2 or more dead letters",
            "dead-letters list",
        ),
        (
            {"/api/alarms": {"alarms": [ALARM]}},
            "credential kv/secret/watch",
            "expires at noon",
            "Renew it",
        ),
        ({"/api/queues": 500}, "nodes", "out of reach", "app setting DataStorage"),
        ({"/api/pipelines": 500}, "pipelines", "out of reach", "app setting DataStorage"),
        (
            {"/api/pipelines": {"pipelines": [{**PIPELINE, "missing_settings": ["X is missing"]}]}},
            "settings",
            "X is missing",
            "docs/app-settings.md",
        ),
        (
            {"/api/pipelines": {"pipelines": [{**PIPELINE, "state": "needs-a-human"}]}},
            "pipeline digits",
            "idle",
            "landfall pipelines get digits",
        ),
        (
            {"/api/pipelines/digits": {**PIPELINE, "champion_problem": "no answer"}},
            "Azure ML",
            "no answer",
            "AzureML Data Scientist",
        ),
        ({"/api/pipelines/digits": 500}, "Azure ML", "out of reach", "AZUREML_WORKSPACE_NAME"),
    ],
)
def test_what_is_bad_is_named_with_its_remedy(
    changes: dict[str, Any], name: str, finding: str, remedy: str
) -> None:
    code, checks = examined(changes)
    assert code == 1
    (bad,) = (each for each in checks.values() if each["verdict"] == "bad")
    assert bad["name"] == name
    assert finding in bad["finding"]
    assert remedy in bad["remedy"]


def test_a_fresh_instance_that_still_loads_the_sdk_is_asked_again() -> None:
    healthy = HEALTHY["/api/pipelines/digits"]
    code, _ = examined(
        {"/api/pipelines/digits": [{**healthy, "champion_problem": "Unavailable"}, healthy]}
    )
    assert code == 0


def test_a_warning_about_compute_is_shown_and_is_no_failure() -> None:
    noted = {**PIPELINE, "compute_warnings": ["no InfiniBand"], "compute_not_known": ["the region"]}
    code, checks = examined({"/api/pipelines": {"pipelines": [noted]}})
    assert code == 0
    assert checks["compute of digits"]["verdict"] == "warning"
    assert checks["compute of digits"]["finding"] == "no InfiniBand"
    assert checks["compute"]["finding"].endswith("not known: the region")


@pytest.mark.parametrize(
    ("status", "code"), [(400, 2), (401, 3), (404, 4), (409, 5), (500, 3), (503, 3)]
)
def test_exit_codes_are_those_of_the_docs(status: int, code: int) -> None:
    handler = type("Refusing", (Handler,), {"answers": {"/api/alarms": status}})
    with serving(handler) as url:
        assert CliRunner().invoke(app, ["--url", url, "--key", "k", "alarms"]).exit_code == code
