"""Checks a pipeline's online deployment file against the guards of its answers, at start-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from handlers.configuration.located_yaml import LocatedYaml
from orchestrations.deploy import OnlineDeploy
from orchestrations.errors import InvalidPipeline


def check_collections(file: Path, deploy: OnlineDeploy) -> None:
    """Refuse a deployment that does not collect the answers that a guard measures.

    Raises:
        InvalidPipeline: they are not collected, or it is not a mapping; names file, line and key.
    """
    wanted = {guard.collection for guard in deploy.guards.answers}
    if not wanted:
        return
    parsed = LocatedYaml.parse(
        file,
        file.read_text("utf-8"),
        shape="a deployment is a mapping, as `az ml online-deployment create` takes it",
        invalid=InvalidPipeline,
    )
    collections = _at(_at(parsed.document, "data_collector"), "collections")
    for name in sorted(wanted):
        enabled = _at(_at(collections, name), "enabled")
        # CLI v2 accepts only the string, not a boolean.
        if not isinstance(enabled, str) or enabled.lower() != "true":
            location = ("data_collector", "collections", name, "enabled")
            problem = "a guard in deploy.guards.answers of pipeline.yml needs the text 'true' here"
            raise InvalidPipeline(parsed.problem(location, problem))


def _at(document: Any, key: str) -> Any:
    return cast("dict[str, Any]", document).get(key) if isinstance(document, dict) else None
