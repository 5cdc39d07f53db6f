"""The walk from a blob to its notification leads through existing code."""

from __future__ import annotations

import ast
import re

from handlers.platform.settings import APP_FOLDER

STOPS_LIMIT = 22


def stops() -> list[tuple[str, str]]:
    page = (APP_FOLDER / "docs" / "architecture.md").read_text("utf-8")
    (walk,) = re.findall(
        r"^## From a blob to its notification\n(.*?)^## ", page, re.DOTALL | re.MULTILINE
    )
    return re.findall(r"^\d+\. `([\w/]+\.py):(\w+)`", walk, re.MULTILINE)


def test_every_stop_is_there() -> None:
    assert stops()
    for file, name in stops():
        tree = ast.parse((APP_FOLDER / file).read_text("utf-8"))
        assert name in {getattr(each, "name", None) for each in tree.body}, f"{file}:{name}"


def test_the_walk_is_short_and_visits_no_stop_twice() -> None:
    assert len(stops()) <= STOPS_LIMIT
    assert len(set(stops())) == len(stops())
