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


def test_without_a_table_nothing_is_known(tmp_path: Path) -> None:
    assert (
        RoleAssignments(tmp_path / "roles.json", tmp_path / "scopes.json").roles("app", "workspace")
        is None
    )


def test_roles_are_those_of_the_principal_on_the_scope(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    write(
        path, row("app", "A", "x"), row("app", "B", "x"), row("app", "C", "y"), row("z", "D", "x")
    )
    assert RoleAssignments(path, path.with_name("scopes.json")).roles("app", "x") == {"A", "B"}


def test_a_change_of_the_table_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    assignments = RoleAssignments(path, path.with_name("scopes.json"))
    write(path, row("app", "A", "x"))
    assert assignments.roles("app", "x") == {"A"}
    write(path, row("app", "B", "x"))
    assert assignments.roles("app", "x") == {"B"}
    path.unlink()
    assert assignments.roles("app", "x") is None


def test_an_invalid_table_is_refused_when_it_is_read_first(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    path.write_text('{"assignments": [{"principal": "app"}]}')
    with pytest.raises(ConfigurationError, match=r"roles\.json"):
        RoleAssignments(path, path.with_name("scopes.json"))


def test_the_table_that_azd_deploys_is_read() -> None:
    path = Path(__file__).parents[4] / "infra" / "roles.json"
    assert RoleAssignments(path, path.with_name("scopes.json")).roles("app", "workspace") == {
        "AzureML Data Scientist",
        "AzureML Compute Operator",
        "Monitoring Reader",
    }


def test_a_role_holds_for_what_is_below_its_scope(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    write(
        path,
        row("app", "Storage Blob Data Reader", "data"),
        row("app", "Azure Service Bus Data Sender", "serviceBus/a"),
    )
    (tmp_path / "scopes.json").write_text('{"scopes": {"data": "storageAccounts/x"}}')
    found = RoleAssignments(path, tmp_path / "scopes.json")
    assert found.permit("app", "storageAccounts/x/containers/c", "containers/blobs/read")
    assert not found.permit("app", "storageAccounts/xy", "containers/blobs/read")
    assert not found.permit("app", "storageAccounts/x/containers/c", "containers/blobs/write")
    assert not found.permit("else", "storageAccounts/x", "containers/blobs/read")
    assert found.permit("app", "serviceBus/a", "messages/send")
    assert not found.permit("app", "serviceBus/ab", "messages/send")


def test_a_table_that_became_invalid_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    write(path, row("app", "A", "x"))
    assignments = RoleAssignments(path, tmp_path / "scopes.json")
    path.write_text("{")
    assert assignments.roles("app", "x") == {"A"}


def test_a_custom_role_allows_what_the_table_names_where_it_is_assigned(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    custom = {"role": "Quota", "actions": ["Microsoft.X/usages/read"], "reason": "because"}
    rows = [row("app", "Quota", "subscription"), row("else", "Other", "subscription")]
    path.write_text(json.dumps({"customRoles": [custom], "assignments": rows}))
    found = RoleAssignments(path, tmp_path / "scopes.json")
    assert found.custom_actions("app", "subscription") == {"microsoft.x/usages/read"}
    assert found.custom_actions("app", "workspace") == set()
    assert found.custom_actions("else", "subscription") == set()
