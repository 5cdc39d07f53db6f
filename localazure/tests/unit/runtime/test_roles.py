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
    assert RoleAssignments(tmp_path / "roles.json").roles("app", "workspace") is None


def test_roles_are_those_of_the_principal_on_the_scope(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    write(
        path, row("app", "A", "x"), row("app", "B", "x"), row("app", "C", "y"), row("z", "D", "x")
    )
    assert RoleAssignments(path).roles("app", "x") == {"A", "B"}


def test_a_change_of_the_table_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "roles.json"
    assignments = RoleAssignments(path)
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
        RoleAssignments(path)


def test_the_table_that_azd_deploys_is_read() -> None:
    path = Path(__file__).parents[4] / "infra" / "roles.json"
    assert RoleAssignments(path).roles("app", "workspace") == {
        "AzureML Data Scientist",
        "AzureML Compute Operator",
    }
