"""The base of the sections of `pipeline.yml` and `queues.yml`, and what several sections have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Prefix = Annotated[
    str, StringConstraints(pattern=r"^([A-Za-z0-9_=.-]*[A-Za-z0-9_=-]/)*$", max_length=512)
]
# https://learn.microsoft.com/azure/machine-learning/how-to-create-attach-compute-cluster
ClusterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{1,31}$")]


class Section(BaseModel):
    """Base of all sections: frozen; unknown keys, and numbers that are not finite, are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


VmSize = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,64}$")]
Priority = Literal["dedicated", "low_priority"]


class ComputeOption(Section):
    """A cluster and a number of nodes. The next option is for later attempts and missing quota."""

    cluster: ClusterName
    """The Azure ML cluster; it is created if it does not exist."""
    size: VmSize
    """The VM size of its nodes. A cluster that exists must have it."""
    priority: Priority = "dedicated"
    """The price class of its nodes; Azure may take `low_priority` ones away."""
    nodes: int = Field(ge=1, le=1000)
    """The job's `instance_count`. The cluster's maximum is raised to it, and never lowered."""
    idle_seconds_before_scale_down: int = Field(default=120, ge=1)
    """How long a cluster that Landfall creates keeps an idle node."""


def ignore_fields(*names: str) -> Any:
    """A validator for the body of a model: fields that only earlier releases wrote are dropped.

    Records, messages and inputs of running instances still have them.
    """

    def drop(cls: type[BaseModel], document: Any) -> Any:  # noqa: ARG001 - pydantic passes it
        if not isinstance(document, dict):
            return document
        return {name: value for name, value in document.items() if name not in names}  # pyright: ignore[reportUnknownVariableType] - not validated yet

    return model_validator(mode="before")(classmethod(drop))  # pyright: ignore[reportArgumentType] - as a decorator
