"""The file `azure-ml.json`: changes to the defaults of an Azure ML workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictInt, model_validator

from localazure.configuration_file import ConfigurationModel, error_at, read_configuration
from localazure.machinelearning.addresses import BlobPath
from localazure.runtime.environment import LOOPBACK, STORAGE_ACCOUNT

DEFAULT_DATASTORE = "workspaceblobstore"
ARTIFACT_DATASTORE = "workspaceartifactstore"
BUILT_IN_DATASTORES = {DEFAULT_DATASTORE: "azureml-blobstore", ARTIFACT_DATASTORE: "azureml"}
DEFAULT_PROVISIONING_SECONDS = 2.0
LOW_PRIORITY_QUOTA = "TotalLowPriorityCores"
"""Azure ML's name of the quota of all low-priority nodes in a region, whatever their size."""


def _lower_case_keys(quota: dict[str, int]) -> dict[str, int]:
    return {size.lower(): nodes for size, nodes in quota.items()}


class Datastore(ConfigurationModel):
    """A datastore on a container of a local storage account."""

    name: str
    container_name: str
    account_name: str | None = None
    """Default: the workspace's account."""


class OtherWorkspace(ConfigurationModel):
    """A further workspace: its datastores and assets, without compute."""

    name: str
    subscription_id: str | None = None
    """Default: that of the first workspace, as is the resource group."""
    resource_group: str | None = None
    storage_account: str = STORAGE_ACCOUNT
    """The account of its built-in datastores."""


class Configuration(ConfigurationModel):
    """Content of `azure-ml.json`."""

    storage_account: str = STORAGE_ACCOUNT
    """The account of the built-in datastores and of uploaded code."""
    added_datastores: tuple[Datastore, ...] = Field(default=(), alias="datastores")
    quota: Annotated[
        dict[str, Annotated[StrictInt, Field(ge=0)]], AfterValidator(_lower_case_keys)
    ] = Field(default_factory=dict[str, int])
    """VM size in lower case → the most dedicated nodes that all clusters of that size have."""
    total_low_priority_cores: Annotated[StrictInt, Field(ge=0)] | None = None
    """The most vCPUs of the low-priority nodes of all sizes together; None: no limit. Those nodes
    do not count in `quota`."""
    provisioning_seconds: Annotated[float, Field(ge=0, strict=True)] = DEFAULT_PROVISIONING_SECONDS
    """The time from the decision to add a node until the node is idle."""
    environments: Literal["build"] | None = None
    """Whether environments are built; None: jobs run in localazure's interpreter."""
    mlflow_server_port: Annotated[StrictInt, Field(ge=1, le=65535)] | None = None
    """The port of MLflow's own server on the jobs' runs; None: jobs log to files without it."""
    other_workspaces: tuple[OtherWorkspace, ...] = ()

    @model_validator(mode="after")
    def _unique_datastores(self) -> Configuration:
        names = set(BUILT_IN_DATASTORES)
        for number, datastore in enumerate(self.added_datastores):
            if datastore.name in names:
                raise error_at(("datastores", number, "name"), "this name is taken")
            names.add(datastore.name)
        return self

    @model_validator(mode="after")
    def _unique_workspaces(self) -> Configuration:
        names = [each.name.lower() for each in self.other_workspaces]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise error_at(("otherWorkspaces", number, "name"), "this name is taken")
        return self

    @property
    def datastores(self) -> dict[str, BlobPath]:
        """Datastore name → its root, for built-in and configured datastores."""
        built_in = {
            name: BlobPath(container, "", self.storage_account)
            for name, container in BUILT_IN_DATASTORES.items()
        }
        configured = {
            item.name: BlobPath(item.container_name, "", item.account_name or self.storage_account)
            for item in self.added_datastores
        }
        return {**built_in, **configured}

    @property
    def mlflow_server(self) -> str | None:
        """The URL of MLflow's server; None without one."""
        port = self.mlflow_server_port
        return None if port is None else f"http://{LOOPBACK}:{port}"

    @property
    def quotas(self) -> dict[str, int]:
        """Name of a quota → its limit, in nodes of a VM size, or in vCPUs of low priority."""
        low_priority = self.total_low_priority_cores
        return self.quota | ({} if low_priority is None else {LOW_PRIORITY_QUOTA: low_priority})

    @classmethod
    def read(cls, path: Path) -> Configuration:
        """Read the file; without a file, use the defaults.

        Raises:
            ConfigurationError: the file is not valid.
        """
        return read_configuration(path, cls) if path.exists() else cls()
