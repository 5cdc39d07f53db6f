"""The table of role assignments, `infra/roles.json`: known roles, known names, a reason each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Annotated, TypeVar

from annotated_types import Len
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from infra.check.bicep_file import BicepFile, properties, string, text, walk
from infra.check.problem import Problem

TABLE = "roles.json"
# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
BUILT_IN: Mapping[str, str] = {
    "AcrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "AcrPush": "8311e382-0749-4cb8-b61a-304f252e45ec",
    "Azure Service Bus Data Owner": "090c5cfd-751d-490a-894a-3ce6f1109419",
    "Azure Service Bus Data Receiver": "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0",
    "Azure Service Bus Data Sender": "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39",
    "AzureML Compute Operator": "e503ece1-11d0-4e8e-8e2c-7a6c3bf38815",
    "AzureML Data Scientist": "f6c7c914-8db3-469d-8ca1-694a8f32e121",
    "Durable Task Data Contributor": "0ad04412-c4d5-4796-b79c-f76d14c8d402",
    "EventGrid Data Sender": "d5a91429-5739-47e2-a06b-3470a27159e7",
    "Key Vault Secrets Officer": "b86a8fe4-44ce-4948-aee5-eccb2c155cd7",
    "Key Vault Secrets User": "4633458b-17de-408a-b874-0445c86b69e6",
    "Managed Identity Operator": "f1a07417-d97a-45cb-824c-7a7467783830",
    "Monitoring Reader": "43d0d8ad-25c7-4714-9337-8ba259a9fe05",
    "Monitoring Metrics Publisher": "3913510d-42f4-4e42-8a64-420c390055eb",
    "Storage Blob Data Contributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "Storage Blob Data Owner": "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
    "Storage Blob Data Reader": "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
    "Storage Queue Data Contributor": "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
    "Storage Table Data Contributor": "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3",
}
_Text = Annotated[str, StringConstraints(min_length=1)]
# No pattern: a role of our own names each action.
_Action = Annotated[
    str, StringConstraints(pattern=r"^Microsoft\.\w+(/\w+)+/(read|write|delete|action)$")
]
OF_CUSTOM_ROLES = ("subscription", "clustersSubnet")


class Assignment(BaseModel):
    """One row: who may do what, where, and why. A custom role's id is derived from its name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    principal: _Text
    role: _Text
    roleId: _Text | None = None  # noqa: N815 - as Bicep writes names
    scope: _Text
    when: _Text
    reason: Annotated[str, StringConstraints(min_length=10)]


class CustomRole(BaseModel):
    """A role that is defined in the subscription, since no built-in one fits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: _Text
    actions: Annotated[tuple[_Action, ...], Len(1)]
    reason: Annotated[str, StringConstraints(min_length=10)]


_Row = TypeVar("_Row", Assignment, CustomRole)


class Table(BaseModel):
    """Content of `roles.json`."""

    model_config = ConfigDict(extra="forbid")

    customRoles: tuple[CustomRole, ...] = ()  # noqa: N815 - as Bicep writes names

    assignments: tuple[Assignment, ...]


def check(root: Path, files: Mapping[str, BicepFile]) -> Iterator[Problem]:
    """Every row is known, needed once, and assigned by a file; every assignment is of the table."""
    path = root / "infra" / TABLE
    try:
        table = Table.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValidationError) as error:
        yield Problem(TABLE, 1, str(error).replace("\n", " "))
        return
    lines = path.read_text("utf-8").splitlines()
    scopes = set[str]()
    for file in files.values():
        scopes |= set(re.findall(r"row => row\.scope == '(\w+)'", text(file.root)))
        yield from _check_assignments(file)
    main = files["main.bicep"]
    table_of_principals = main.variables.get("principals", main.root)
    principals = {key for key, _, _ in properties(table_of_principals)}
    conditions = _conditions(main)
    custom = {each.role for each in table.customRoles}
    for role in sorted(custom - {row.role for row in table.assignments}):
        yield Problem(TABLE, 1, f"no row assigns the custom role {role}")
    seen = set[tuple[str, str, str]]()
    for row in table.assignments:
        line = 1 + next(i for i, each in enumerate(lines) if row.reason in json_text(each))
        yield from _check_role(row, custom, line)
        if row.principal not in principals:
            yield Problem(TABLE, line, f"main.bicep has no principal {row.principal}")
        if row.scope not in scopes:
            yield Problem(TABLE, line, f"no file assigns roles on {row.scope}")
        if row.when not in conditions:
            yield Problem(
                TABLE, line, f"when: {row.when} is none of {', '.join(sorted(conditions))}"
            )
        key = (row.principal, row.role, row.scope)
        if key in seen:
            yield Problem(TABLE, line, f"{row.principal} has {row.role} on {row.scope} twice")
        seen.add(key)
    for scope in sorted(scopes - {row.scope for row in table.assignments}):
        yield Problem(TABLE, 1, f"no row has scope {scope}, for which a file assigns roles")


def rows(root: Path) -> tuple[list[tuple[int, Assignment]], list[tuple[int, CustomRole]]]:
    """Line and row of each assignment and custom role; none if the table is not valid."""
    text_ = (root / "infra" / TABLE).read_text("utf-8")
    try:
        table = Table.model_validate_json(text_)
    except ValidationError:
        return [], []  # `check` says what is wrong
    lines = [json_text(each) for each in text_.splitlines()]

    def numbered(listed: Iterable[_Row]) -> list[tuple[int, _Row]]:
        return [
            (
                1
                + next(
                    i for i, each in enumerate(lines) if row.reason in each and row.role in each
                ),
                row,
            )
            for row in listed
        ]

    return numbered(table.assignments), numbered(table.customRoles)


def _check_role(row: Assignment, custom: AbstractSet[str], line: int) -> Iterator[Problem]:
    if row.role in custom:
        if row.roleId is not None or row.scope not in OF_CUSTOM_ROLES:
            message = (
                f"{row.role} is a custom role: no roleId, scope {' or '.join(OF_CUSTOM_ROLES)}"
            )
            yield Problem(TABLE, line, message)
    elif row.roleId is None or BUILT_IN.get(row.role) != row.roleId:
        yield Problem(TABLE, line, f"{row.role} with id {row.roleId} is not a role that we know")


def json_text(line: str) -> str:
    """A line of JSON with its escapes undone, so that texts are found in it."""
    return line.encode().decode("unicode_escape") if "\\" in line else line


def _check_assignments(file: BicepFile) -> Iterator[Problem]:
    for resource in file.resources:
        if resource.type != "Microsoft.Authorization/roleAssignments" or resource.body is None:
            continue
        values = {key: value for key, value, _ in properties(resource.body)}
        if not text(values["name"]).startswith("guid("):
            yield file.problem(resource.node, "the name must be derived, by guid(…)")
        inner = {key: value for key, value, _ in properties(values["properties"])}
        if "principalType" not in inner:  # without it Azure looks new identities up too early
            yield file.problem(resource.node, "principalType is missing")
        if not re.search(r"\brow\.role(Id)?\b", text(inner["roleDefinitionId"])):
            yield file.problem(resource.node, f"the role must be a row of {TABLE}")


def _conditions(main: BicepFile) -> set[str]:
    """`always`, and the allowed values of `network` and `durableBackend`."""
    conditions = {"always"}
    for node in main.root.named_children:
        if node.type == "decorators" and "allowed" in text(node):
            conditions |= {string(each) for each in walk(node) if each.type == "string"}
    return conditions
