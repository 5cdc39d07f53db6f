"""Workspaces that models are promoted to: the schema of `workspaces.yml`, beside the pipelines.

Pure: `handlers.platform.configuration.pipeline_files` reads the file.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from orchestrations.configuration.approve import PROMOTION, Approval
from orchestrations.configuration.pipeline import Name
from orchestrations.configuration.section import Section


def _before_promotion(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.get("before", PROMOTION) != PROMOTION:  # pyright: ignore[reportUnknownMemberType] - not validated yet
        raise ValueError(f"before is {PROMOTION!r} here; pipeline.yml asks before the other steps")
    return {"before": PROMOTION, **value}


class Destination(Section):
    """A workspace that models are promoted to."""

    name: Name
    subscription_id: Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f-]{36}$")]
    resource_group: str = Field(min_length=1, max_length=90)
    workspace: str = Field(min_length=1, max_length=33)
    storage: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]{1,63}$")]
    """The app setting of the account of its default datastore, as `WorkspaceStorage` is one: a
    connection string, or `<storage>__blobServiceUri`."""
    approve: Annotated[Approval | None, BeforeValidator(_before_promotion)] = None
    """The people who are asked before a model goes there, as in `pipeline.yml`."""

    @property
    def id(self) -> str:
        """The workspace's ARM id."""
        return (
            f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"
            f"/providers/Microsoft.MachineLearningServices/workspaces/{self.workspace}"
        )


class Workspaces(Section):
    """The file `workspaces.yml`."""

    workspaces: list[Destination] = Field(default=[], max_length=20)

    @model_validator(mode="after")
    def _each_once(self) -> Workspaces:
        names = [each.name for each in self.workspaces]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]!r} is twice among the workspaces")
        return self
