"""The names by which the parts know one another: what is registered, and what is deployed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
import yaml

from handlers.operate.api.openapi import describe_api
from handlers.operate.api.routes import ROUTES
from handlers.platform import service_bus
from handlers.platform.configuration.pipeline_files import load_pipelines
from handlers.platform.settings import APP_FOLDER, Settings
from localazure.servicebus.configuration import load
from orchestrations.landing.forgetting import forgetting
from orchestrations.landing.freezing import freezing
from orchestrations.landing.landing import RETRAINING, landing
from orchestrations.platform import activities
from orchestrations.rollout.rollout import rollout
from orchestrations.training.promotion import promotion
from orchestrations.training.retraining import retraining

INFRA = APP_FOLDER / "infra" / "local"
PIPELINES = load_pipelines(APP_FOLDER / "pipelines", records_container="landfall")


def from_queue(name: str, **more: str) -> list[dict[str, Any]]:
    trigger = {"type": "serviceBusTrigger", "queueName": name, "connection": "ServiceBus"}
    return [trigger | more]


# Name → its bindings but for the durable client, without what says nothing (direction, parameter).
OTHER_TRIGGERS: dict[str, list[dict[str, Any]]] = {
    "on_blob_events": from_queue("blob-events", cardinality="MANY"),
    "on_blob_event": [{"type": "eventGridTrigger"}],
    "on_job_events": from_queue("job-events", cardinality="MANY"),
    "on_job_event": [{"type": "eventGridTrigger"}],
    "on_retry": from_queue("retries"),
    "on_rollout": from_queue("rollouts"),
    "deliver_notification": from_queue("notifications"),
    "reconcile": [{"type": "timerTrigger", "schedule": "%RECONCILE_SCHEDULE%"}],
    "raise_alarms": [{"type": "timerTrigger", "schedule": "%RECONCILE_SCHEDULE%"}],
}
LINKED = {"get_linked_approval", "answer_linked_approval", "get_linked_picture"}
ANONYMOUS = {"start_run", "ui", *LINKED}


def as_http(function: str, method: str, path: str) -> list[dict[str, Any]]:
    level = "ANONYMOUS" if function in ANONYMOUS else "FUNCTION"
    trigger = {"type": "httpTrigger", "route": path, "methods": [method], "authLevel": level}
    return [trigger, {"type": "http"}]


TRIGGERS = {
    **OTHER_TRIGGERS,
    **{route.name: as_http(route.name, route.method, route.path) for route in ROUTES},
    "ui": as_http("ui", "GET", "ui/{*file}"),
}
WITHOUT_DURABLE_CLIENT = {"deliver_notification", "raise_alarms", "ui"}
ORCHESTRATORS = {"forgetting", "freezing", "landing", "promotion", "retraining", "rollout"}

# The app twice, without and with a setting: its module reads the settings when it is imported.
_PROGRAM = """
import asyncio, json, os, sys
import azure.functions as func
from function_app import app
bindings = {
    function.get_function_name(): [json.loads(each) for each in function.get_raw_bindings()]
    for function in app.get_functions()
}
del sys.modules["function_app"]
os.environ["API_SIGN_IN"] = "entra"
from function_app import app
client = json.dumps({"taskHubName": "t", "rpcBaseUrl": "http://127.0.0.1:9", "creationUrls": {
    "createNewInstancePostUri": "", "createAndWaitOnNewInstancePostUri": ""},
    "managementUrls": dict.fromkeys(["id", "statusQueryGetUri", "sendEventPostUri",
    "terminatePostUri", "rewindPostUri", "purgeHistoryDeleteUri", "restartPostUri",
    "suspendPostUri", "resumePostUri"], "")})
def trigger_of(function):
    bindings = map(json.loads, function.get_raw_bindings())
    return next((each for each in bindings if each["type"] == "httpTrigger"), None)
async def call(function):
    trigger, statuses = trigger_of(function), []
    request = func.HttpRequest(method=trigger["methods"][0], url="/", body=b"")
    for enabled in ("", "True"):
        os.environ["WEBSITE_AUTH_ENABLED"] = enabled
        answer = await function.get_user_function()(req=request, starter=client)
        statuses.append(answer.status_code)
    return function.get_function_name(), [trigger["authLevel"], *statuses]
async def call_unsigned():
    found = [each for each in app.get_functions() if trigger_of(each)]
    apart = [each for each in found if each.get_function_name() not in (
        "ui", "start_run", "get_linked_approval", "answer_linked_approval", "get_linked_picture")]
    return dict([await call(each) for each in apart])
print(json.dumps([bindings, asyncio.run(call_unsigned())]))
"""


@cache
def printed() -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[Any]]]:
    """Every function's bindings, and what each route answers to unsigned requests, by its name.

    From a process of its own: `get_functions` can be called once only, and reads the settings.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        check=True,
        capture_output=True,
        text=True,
        cwd=APP_FOLDER,
    )
    bindings, answers = json.loads(done.stdout)
    return bindings, answers


def registered() -> dict[str, list[dict[str, Any]]]:
    """Every function's bindings, by its name."""
    bindings, _ = printed()
    return bindings


def registered_as(kind: str) -> set[str]:
    return {
        name
        for name, bindings in registered().items()
        if any(binding["type"] == kind for binding in bindings)
    }


def test_every_trigger_is_registered_as_the_table_says() -> None:
    durable = registered_as("orchestrationTrigger") | registered_as("activityTrigger")
    found = {
        name: [
            {key: value for key, value in binding.items() if key not in ("direction", "name")}
            for binding in bindings
            if binding["type"] != "durableClient"
        ]
        for name, bindings in registered().items()
        if name not in durable
    }
    assert found == TRIGGERS


def test_where_entra_opens_the_api_no_route_is_open_to_others() -> None:
    """Neither while App Service authentication is off, nor to who has not signed in."""
    of_the_api = {route.name for route in ROUTES} - ANONYMOUS
    _, answers = printed()
    assert answers == {route: ["ANONYMOUS", 503, 401] for route in of_the_api}


def test_who_has_the_durable_client() -> None:
    assert registered_as("durableClient") == TRIGGERS.keys() - WITHOUT_DURABLE_CLIENT


def test_orchestrators_are_registered_by_the_names_that_they_are_started_by() -> None:
    assert registered_as("orchestrationTrigger") == ORCHESTRATORS
    started = {
        each.__name__ for each in (landing, freezing, forgetting, retraining, promotion, rollout)
    }
    assert started == ORCHESTRATORS
    assert retraining.__name__ == RETRAINING


def test_every_activity_is_registered_and_no_other() -> None:
    assert registered_as("activityTrigger") == set(activities.ACTIVITIES)


def test_the_architecture_page_names_every_trigger() -> None:
    page = (APP_FOLDER / "docs" / "architecture.md").read_text("utf-8")
    (row,) = re.findall(r"^\| functions \| (.*) \|$", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(TRIGGERS)


def test_every_route_is_on_the_page_of_the_http_api() -> None:
    page = (APP_FOLDER / "docs" / "http-api.md").read_text("utf-8")
    table = "\n".join(re.findall(r"^\| `.*$", page, re.MULTILINE))
    shown = re.findall(r"`(GET|POST) /api/([^`?]+)", table)
    assert sorted(shown) == sorted([("GET", "ui"), *((it.method, it.path) for it in ROUTES)])


def test_every_route_is_in_the_openapi_document() -> None:
    described = {
        operation["operationId"]: f"{method.upper()} {path.removeprefix('/api/')}"
        for path, operations in describe_api()["paths"].items()
        for method, operation in operations.items()
    }
    routes = {it.name: f"{it.method} {it.path}" for it in ROUTES if it.name != "openapi"}
    assert described == routes, "the document itself has no document"


# --- infra/local ---------------------------------------------------------------------------------


def infra(name: str) -> Any:
    return json.loads((INFRA / name).read_text("utf-8"))


def test_service_bus_has_the_queues_and_topics_that_are_used_and_no_other() -> None:
    (namespace,) = infra("Config.json")["UserConfig"]["Namespaces"]
    triggers = {
        binding["queueName"]
        for bindings in registered().values()
        for binding in bindings
        if binding["type"] == "serviceBusTrigger"
    }
    sent_to = {
        service_bus.RETRIES,
        service_bus.ROLLOUTS,
        service_bus.NOTIFICATIONS,
        service_bus.REJECTED_RUNS,
    }
    delivered_to = destinations("ServiceBusQueue")
    assert triggers <= sent_to | delivered_to
    assert {queue["Name"] for queue in namespace["Queues"]} == sent_to | delivered_to
    assert [topic["Name"] for topic in namespace["Topics"]] == [service_bus.OPS_ALERTS]


def test_duplicates_are_detected_for_longer_than_an_outage_lasts() -> None:
    """Messages that were sent without an answer are sent again from the outbox after the outage."""
    config = load(INFRA / "Config.json")
    # Event Grid may deliver an event to its queues twice: their handlers are idempotent.
    delivered_to = destinations("ServiceBusQueue")
    for entity in (*config.queues, *config.topics):
        if entity.name in delivered_to:
            continue
        window_ms = entity.properties.duplicate_window_ms or 0
        assert window_ms >= timedelta(days=2) / timedelta(milliseconds=1)


def test_alerts_that_nobody_receives_do_not_pile_up() -> None:
    """Other messages wait for the app, which empties its queues, or for a person."""
    config = load(INFRA / "Config.json")
    for topic in config.topics:
        for subscription in topic.subscriptions:
            kept_ms = subscription.properties.default_ttl_ms or 0
            assert 0 < kept_ms <= timedelta(days=14) / timedelta(milliseconds=1), subscription.name


def test_handlers_send_to_queues_and_topics_by_their_constants_only() -> None:
    """So that the test above sees every one of them."""
    for file in APP_FOLDER.glob("handlers/**/*.py"):
        literal = re.search(
            r"""\.(?:send|publish|get_queue_\w+|get_topic_\w+|get_subscription_\w+)\(\s*["']""",
            file.read_text("utf-8"),
        )
        assert literal is None, f"{file.name}: {literal}"


def destinations(kind: str) -> set[str]:
    """The queues, or functions, that event subscriptions deliver to."""
    found = [
        subscription["properties"]["deliveryWithResourceIdentity"]["destination"]
        for subscription in infra("event-grid.json")["eventSubscriptions"]
    ]
    return {
        each["properties"]["resourceId"].rpartition("/")[2]
        for each in found
        if each["endpointType"] == kind
    }


def test_events_come_through_the_queue_and_every_door_has_a_twin() -> None:
    assert destinations("AzureFunction") == set()
    assert destinations("ServiceBusQueue") == {"blob-events", "job-events"}
    assert {f"{door}s" for door in registered_as("eventGridTrigger")} <= set(TRIGGERS)


def test_the_topic_that_is_published_to_is_there() -> None:
    topics = {topic["name"] for topic in infra("event-grid.json")["topics"]} - {
        "key-vault"
    }  # of Azure's own events
    used = re.findall(r"\{topic_tls_endpoint:(.*?)\}", json.dumps(infra("app-settings.json")))
    assert set(used) == topics


def test_events_of_every_landing_zone_are_subscribed_to() -> None:
    prefixes = [
        subscription["properties"]["filter"]["subjectBeginsWith"]
        for subscription in infra("event-grid.json")["eventSubscriptions"]
        if subscription["topic"] == "storage"
    ]
    for pipeline in PIPELINES.values():
        source = pipeline.source
        zone = f"/blobServices/default/containers/{source.container}/blobs/{source.prefix}"
        assert any(zone.startswith(prefix) for prefix in prefixes), pipeline.name


def test_containers_are_those_of_zones_records_and_dead_letters() -> None:
    dead_letters = re.findall(r'"blobContainerName": "(.*?)"', json.dumps(infra("event-grid.json")))
    zones = {pipeline.source.container for pipeline in PIPELINES.values()}
    wanted = zones | {Settings({}).records_container} | set(dead_letters)
    accounts = infra("storage.json")["accounts"]
    assert {name for each in accounts for name in each.get("containers", [])} == wanted


def test_datastores_are_those_of_zones_and_records() -> None:
    datastores = {
        each["name"]: each["containerName"] for each in infra("azure-ml.json")["datastores"]
    }
    settings = Settings({})
    wanted = {
        pipeline.dataset.datastore: pipeline.source.container for pipeline in PIPELINES.values()
    } | {settings.records_datastore: settings.records_container}
    assert datastores == wanted


def test_jobs_read_from_datastores_that_there_are() -> None:
    known = {each["name"] for each in infra("azure-ml.json")["datastores"]}
    for name, pipeline in PIPELINES.items():
        job = yaml.safe_load((APP_FOLDER / "pipelines" / name / pipeline.job).read_text("utf-8"))
        used = re.findall(r"azureml://datastores/(\w+)/", json.dumps(job))
        assert set(used) <= known | {"workspaceblobstore"}, name


@pytest.mark.parametrize("setting", infra("app-settings.json"))
def test_every_local_setting_is_documented(setting: str) -> None:
    page = (APP_FOLDER / "docs" / "app-settings.md").read_text("utf-8")
    general = re.sub(r"^\w+?__(credential|clientId)$", r"NAME__\1", setting)
    assert f"`{general}`" in page


def test_every_setting_of_the_architecture_page_is_documented() -> None:
    pages = APP_FOLDER / "docs"
    (row,) = re.findall(
        r"^\| app settings \| (.*) \|$",
        (pages / "architecture.md").read_text("utf-8"),
        re.MULTILINE,
    )
    documented = (pages / "app-settings.md").read_text("utf-8")
    named = [each for each in re.findall(r"`(\w+)`", row) if not each.startswith("__")]
    assert named
    assert [each for each in named if f"`{each}" not in documented] == []
