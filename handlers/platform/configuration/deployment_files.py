"""Checks a pipeline's deployment file at start-up: its syntax, and what guards of answers need."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from handlers.platform.configuration.located_yaml import LocatedYaml, read_text
from orchestrations.configuration.deploy import Deploy, OnlineDeploy
from orchestrations.errors import InvalidPipeline


def check_deployment_file(file: Path, deploy: Deploy) -> None:
    """Check a deployment file, and that it collects the answers that a guard measures.

    Raises:
        InvalidPipeline: they are not collected, or it is not a mapping (see `located_yaml`); names
            file, line and key.
    """
    parsed = LocatedYaml.parse(
        file,
        read_text(file, invalid=InvalidPipeline),
        shape=f"a deployment is a mapping, as `az ml {deploy.kind}-deployment create` takes it",
        invalid=InvalidPipeline,
    )
    guards = deploy.guards.answers if isinstance(deploy, OnlineDeploy) else []
    wanted = {guard.collection for guard in guards}
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
