"""The file `storage.json`: storage accounts, and containers that are created at the start."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from localazure.configuration_file import ConfigurationModel, error_at, read_configuration
from localazure.runtime.environment import STORAGE_ACCOUNT

# https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
_ContainerName = Annotated[
    str,
    StringConstraints(
        min_length=3, max_length=63, pattern=r"^(\$(root|web|logs)|[a-z0-9]+(-[a-z0-9]+)*)$"
    ),
]
# https://learn.microsoft.com/azure/storage/common/storage-account-overview#storage-account-name
_AccountName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{3,24}$")]


class AccountKind(StrEnum):
    """The kinds of accounts, as ARM names them, that are covered.

    Source: https://learn.microsoft.com/azure/storage/common/storage-account-overview
    """

    STANDARD = "StorageV2"
    PREMIUM_BLOCK_BLOB = "BlockBlobStorage"


class Account(ConfigurationModel):
    """One storage account."""

    name: _AccountName
    kind: AccountKind = AccountKind.STANDARD
    containers: tuple[_ContainerName, ...] = ()
    has_system_topic: bool = True
    """Whether the account sends its blob events to the topic `storage`, or no events."""
    is_hns_enabled: bool = False
    """Whether the namespace is hierarchical, with files, directories and the dfs endpoint."""


class StorageConfiguration(ConfigurationModel):
    """Content of `storage.json`."""

    containers: tuple[_ContainerName, ...] = ()
    """Containers of the default account."""
    added_accounts: tuple[Account, ...] = Field(default=(), alias="accounts")

    @model_validator(mode="after")
    def _unique_names(self) -> StorageConfiguration:
        names = {STORAGE_ACCOUNT}
        for number, account in enumerate(self.added_accounts):
            if account.name in names:
                raise error_at(("accounts", number, "name"), "this name is taken")
            names.add(account.name)
        return self

    @property
    def accounts(self) -> Mapping[str, Account]:
        """All accounts by name, with the default account."""
        everywhere = Account(name=STORAGE_ACCOUNT, containers=self.containers)
        return {each.name: each for each in (everywhere, *self.added_accounts)}

    @classmethod
    def read(cls, path: Path) -> StorageConfiguration:
        """Read the file. A missing file declares nothing.

        Raises:
            ConfigurationError: the file is not valid.
        """
        return read_configuration(path, cls) if path.exists() else cls()
