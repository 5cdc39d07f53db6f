"""Containers that clients upload into: creates them, and issues their SAS."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blob_errors import BlobError
from localazure.machinelearning.data.blobs import BlobStore, retry_while_unavailable
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.workspace import Workspace
from localazure.runtime.environment import Environment
from localazure.storage_client.shared_access import service_sas

SAS_LIFETIME = timedelta(hours=24)
CLOCK_SKEW = timedelta(minutes=5)
STORAGE_PATIENCE_SECONDS = 15.0


def sas_token(workspace: Workspace, where: BlobPath, *, delete: bool = False) -> str:
    """A SAS to read, list and write, without a leading question mark.

    Args:
        workspace: its clock sets the start and the expiry of the SAS.
        where: a path in the container.
        delete: whether the SAS also allows to delete blobs.
    """
    now = datetime.fromtimestamp(workspace.clock(), tz=UTC)
    return service_sas(
        account=where.account,
        key=workspace.environment.storage_key(where.account),
        container=where.container,
        permissions="racwdl" if delete else "racwl",
        start=now - CLOCK_SKEW,
        expiry=now + SAS_LIFETIME,
    )


async def create_container(workspace: Workspace, where: BlobPath) -> None:
    """Create the container of a path unless it exists.

    Raises:
        ArmError: 503, storage is unavailable.
    """
    try:
        await asyncio.to_thread(_create, workspace.environment, where)
    except BlobError as error:
        raise ArmError(503, "StorageUnavailable", f"no storage: {error}") from error


def _create(environment: Environment, where: BlobPath) -> None:
    with contextlib.closing(BlobStore(environment)) as store:
        retry_while_unavailable(
            lambda: store.ensure_container(where), give_up_after_seconds=STORAGE_PATIENCE_SECONDS
        )
