"""docs/operations.md, the page and the command line say the same of errors, and of roles."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from handlers.operate.api.remedies import REMEDIES
from handlers.platform.settings import APP_FOLDER
from landfall_cli import doctor
from orchestrations import errors
from orchestrations.errors import LandfallError


def test_the_operations_page_has_the_table_of_remedies() -> None:
    page = (APP_FOLDER / "docs" / "operations.md").read_text("utf-8")
    (table,) = re.findall(r"^\| type \| do \|\n\|---\|---\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)) == dict(REMEDIES)


def test_every_remedy_is_of_an_error_that_there_is() -> None:
    for name in REMEDIES:
        assert issubclass(getattr(errors, name), LandfallError)


TABLE = json.loads((APP_FOLDER / "infra" / "roles.json").read_text("utf-8"))
GRANTED = {row["role"] for row in TABLE["assignments"]}
# Names of Azure's built-in roles for data and Azure ML.
ROLE = re.compile(
    r"(?:Storage|Azure Service Bus|EventGrid|Durable Task) (?:\w+ )?Data [A-Z]\w+"
    r"|AzureML [A-Z]\w+ [A-Z]\w+|Managed Identity [A-Z]\w+|Key Vault [A-Z]\w+ (?:User|Officer)"
)
TEXTS = [
    *(APP_FOLDER / "docs").glob("*.md"),
    *(
        file
        for folder in ("handlers", "landfall_cli", "page", "infra/hooks")
        for file in (APP_FOLDER / folder).rglob("*")
        if file.suffix in {".py", ".js", ".html"}
    ),
]


@pytest.mark.parametrize("file", TEXTS, ids=[str(each.relative_to(APP_FOLDER)) for each in TEXTS])
def test_no_text_recommends_a_role_that_the_deployment_withholds(file: Path) -> None:
    assert set(ROLE.findall(" ".join(file.read_text("utf-8").split()))) <= GRANTED


@pytest.mark.parametrize(
    ("remedy", "scopes"),
    [
        (doctor.STORAGE_REMEDY, {"landing", "records"}),
        (doctor.BUS_REMEDY, {"serviceBus"}),
        (doctor.AZURE_ML_REMEDY, {"workspace"}),
    ],
)
def test_the_doctor_names_every_role_of_the_app_there_and_no_other(
    remedy: str, scopes: set[str]
) -> None:
    rows = [row for row in TABLE["assignments"] if row["principal"] == "app"]
    there = [row for row in rows if row["scope"] in scopes]
    assert set(ROLE.findall(remedy)) <= {row["role"] for row in there}
    assert [row for row in there if f"{row['role']} on {row['scope']}" not in remedy] == []
