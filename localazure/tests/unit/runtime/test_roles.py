from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from localazure.errors import ConfigurationError
from localazure.runtime.roles import RoleAssignments


def row(principal: str, role: str, scope: str) -> dict[str, Any]:
    more = {"roleId": "id", "when": "always", "reason": "because"}
    return {"principal": principal, "role": role, "scope": scope, **more}


def write(path: Path, *rows: dict[str, Any]) -> None:
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(json.dumps({"assignments": rows}))
    os.utime(path, ns=(before + 1, before + 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "roles.json"


def read(path: Path) -> RoleAssignments:
    return RoleAssignments(path, path.with_name("scopes.json"))


def test_a_change_of_the_table_counts_at_once(path: Path) -> None:
    assignments = read(path)
    assert assignments.roles("app", "x") is None  # the table does not exist yet
    write(
        path, row("app", "A", "x"), row("app", "B", "x"), row("app", "C", "y"), row("z", "D", "x")
    )
    assert assignments.roles("app", "x") == {"A", "B"}
    write(path, row("app", "B", "x"))
    assert assignments.roles("app", "x") == {"B"}
    path.write_text("{")
    assert assignments.roles("app", "x") == {"B"}  # an invalid table changes nothing
    path.unlink()
    assert assignments.roles("app", "x") is None


def test_an_invalid_table_is_refused_when_it_is_read_first(path: Path) -> None:
    path.write_text('{"assignments": [{"principal": "app"}]}')
    with pytest.raises(ConfigurationError, match=r"roles\.json"):
        read(path)


def test_the_table_that_azd_deploys_is_read() -> None:
    path = Path(__file__).parents[4] / "infra" / "roles.json"
    assert read(path).roles("app", "workspace") == {
        "AzureML Data Scientist",
        "AzureML Compute Operator",
        "Monitoring Reader",
    }


def test_a_role_holds_for_what_is_below_its_scope(path: Path) -> None:
    write(
        path,
        row("app", "Storage Blob Data Reader", "data"),
        row("app", "Azure Service Bus Data Sender", "serviceBus/a"),
    )
    path.with_name("scopes.json").write_text('{"scopes": {"data": "storageAccounts/x"}}')
    found = read(path)
    assert found.permit("app", "storageAccounts/x/containers/c", "containers/blobs/read")
    assert not found.permit("app", "storageAccounts/xy", "containers/blobs/read")
    assert not found.permit("app", "storageAccounts/x/containers/c", "containers/blobs/write")
    assert not found.permit("else", "storageAccounts/x", "containers/blobs/read")
    assert found.permit("app", "serviceBus/a", "messages/send")
    assert not found.permit("app", "serviceBus/ab", "messages/send")


def test_a_custom_role_allows_what_the_table_names_where_it_is_assigned(path: Path) -> None:
    custom = {"role": "Quota", "actions": ["Microsoft.X/usages/read"], "reason": "because"}
    rows = [row("app", "Quota", "subscription"), row("else", "Other", "subscription")]
    path.write_text(json.dumps({"customRoles": [custom], "assignments": rows}))
    found = read(path)
    assert found.custom_actions("app", "subscription") == {"microsoft.x/usages/read"}
    assert found.custom_actions("app", "workspace") == set()
    assert found.custom_actions("else", "subscription") == set()
