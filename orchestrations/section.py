"""The base class of the sections of `pipeline.yml` and `queues.yml`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Prefix = Annotated[
    str, StringConstraints(pattern=r"^([A-Za-z0-9_=.-]*[A-Za-z0-9_=-]/)*$", max_length=512)
]
# https://learn.microsoft.com/azure/machine-learning/how-to-create-attach-compute-cluster
ClusterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{1,31}$")]


class Section(BaseModel):
    """Base of all sections: frozen; unknown keys, and numbers that are not finite, are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
