from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from localazure import machinelearning
from localazure.__main__ import main
from localazure.eventgrid.store import Store
from localazure.faults.injector import FILE
from localazure.faults.operations import OPERATIONS, why_unmatched
from localazure.faults.plan import FAULTS, Part, moderate
from localazure.machinelearning.authorization import action_of
from localazure.runtime.environment import PLAN, Environment, Ports
from localazure.storage.actions import needed_for
from localazure.storage_client.endpoint import Service

DOCS = Path(__file__).parents[3] / "docs" / "faults.md"
SERVICE_BUS = """{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "orders"}],
  "Topics": [{"Name": "news", "Subscriptions": [{"Name": "all"}]}]}]}}"""
SUBSCRIPTION = {
    "topic": "things",
    "properties": {"destination": {"endpointType": "WebHook", "properties": {"endpointUrl": "x"}}},
}


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """The state folder of a runtime with names of its own, one of them added at run time."""
    environment = Environment.draw(
        tmp_path / "state", app=tmp_path, config=tmp_path, ports=Ports.from_base(7070)
    )
    environment.save()
    (tmp_path / "Config.json").write_text(SERVICE_BUS)
    events = {"topics": [{"name": "things", "inputSchema": "CloudEventSchemaV1_0"}]}
    (tmp_path / "event-grid.json").write_text(json.dumps(events))
    store = Store(environment.part_folder("eventgrid") / "events.db")
    await store.put_subscription("added", {**SUBSCRIPTION, "name": "added"})
    store.close()
    return environment.state


@pytest.mark.parametrize(
    ("part", "operation", "words"),
    [
        ("storage", "blob/containers/blobs/wirte", "perhaps blob/containers/blobs/write or "),
        ("storage", "blobs/*", "there is blob/blobServices/"),
        ("storage", "send/orders", "nothing of storage that can have the fault reset matches"),
        ("servicebus", "send/ordrs", "perhaps send/orders or settle/orders"),
        ("servicebus", "recieve/*", "there is send/news, send/news/Subscriptions/all, send/orders"),
        ("eventgrid", "publish/thing", "perhaps publish/things"),
        ("eventgrid", "deliver/addd", "perhaps deliver/added; "),
        ("machinelearning", "onlineEndpoints/write", "perhaps onlineendpoints/write"),
        ("machinelearning", "nodes/spot", "that can have the fault reset matches 'nodes/spot'"),
        ("functions", "activty/charge", "perhaps activity/*; there is activity/*"),
        *(
            (part, operation, "")
            for part, operation in (
                ("storage", "*"),
                ("storage", "blob/*/read"),
                ("servicebus", "send/news/*"),
                ("servicebus", "*orders"),
                ("eventgrid", "deliver/added"),
                ("machinelearning", "*/versions/write"),
                ("functions", "*/charge_card"),
                ("functions", "a[a-z]*/charge_card"),
            )
        ),
    ],
)
def test_a_rule_that_would_never_apply_is_refused(
    state: Path, part: str, operation: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = "repeat" if part == "functions" else "reset"
    plan = state.parent / "plan.json"
    rule = {"part": part, "operation": operation, "fault": fault}
    plan.write_text(json.dumps({"seed": 1, "rules": [rule]}, indent=1))
    arguments = ["faults", str(plan), "--state", str(state)]
    if words:
        with pytest.raises(SystemExit) as refused:
            main(arguments)
        assert f"{plan}:6: rules[0].operation: nothing of {part}" in str(refused.value)
        assert words in str(refused.value)
    else:
        assert main(arguments) == 0
    assert (state / FILE).exists() is not bool(words)
    assert PLAN not in os.environ  # the plan of a host's limits is another
    capsys.readouterr()


def test_the_operations_are_those_of_the_parts() -> None:
    methods = ("GET", "PUT", "POST", "DELETE", "PATCH")
    targets = (
        "/a",
        "/a/b",
        "/a/b/c",
        "/a/b/messages",
        "/a/b/messages/1",
        "/a/Tables",
        "/a/Tables('x')",
    )
    queries = (
        "",
        "?restype=container",
        *(f"?comp={one}" for one in ("list", "batch", "tags", "acl")),
    )
    more = ("?comp=userdelegationkey", "?restype=container&comp=acl", "?peekonly=true")
    asked = {
        f"{service}/{needed_for(service, method, target + query, {})[0].action}"
        for service in Service
        for method in methods
        for target in targets
        for query in (*queries, *more)
    }
    assert asked == OPERATIONS[Part.STORAGE].keys() - {"clock"}
    routes: set[str] = set()
    for file in Path(machinelearning.__path__[0]).rglob("*.py"):
        if "web.RouteTableDef()" not in file.read_text():
            continue
        name = ".".join(file.relative_to(Path(machinelearning.__path__[0])).with_suffix("").parts)
        for route in importlib.import_module(f"{machinelearning.__name__}.{name}").routes:
            assert isinstance(route, web.RouteDef)
            _, found, path = route.path.partition("/workspaces/{workspace}")
            for kind in ("data", "models", "environments", "components", "codes"):
                segments = re.sub(r"\{collection:[^}]*\}", kind, path).strip("/").split("/")
                action = action_of(route.method, segments).partition("workspaces/")[2]
                if found and path and action and route.method != "*":
                    routes.add(action)
    listed = {name for name in OPERATIONS[Part.AZURE_ML] if "*" not in name} - {"clock"}
    assert routes == listed


def test_every_rule_of_the_moderate_plan_and_of_the_page_may_apply() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    rules: list[Any] = [*moderate(1).rules, *moderate(1).model_validate_json(example).rules]
    assert [why for rule in rules if (why := why_unmatched(rule, {}))] == []
    for part, operations in OPERATIONS.items():
        assert {fault for faults in operations.values() for fault in faults} == FAULTS[part]
