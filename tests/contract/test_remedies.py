"""docs/operations.md, the page and the command line say the same of every error."""

from __future__ import annotations

import re

from handlers.api.remedies import REMEDIES
from handlers.configuration.settings import APP_FOLDER
from orchestrations import errors
from orchestrations.errors import LandfallError


def test_the_operations_page_has_the_table_of_remedies() -> None:
    page = (APP_FOLDER / "docs" / "operations.md").read_text("utf-8")
    (table,) = re.findall(r"^\| type \| do \|\n\|---\|---\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)) == dict(REMEDIES)


def test_every_remedy_is_of_an_error_that_there_is() -> None:
    for name in REMEDIES:
        assert issubclass(getattr(errors, name), LandfallError)
