"""The partitions of a zone, and the prefixes that a freeze lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from handlers.platform.clients import Clients
from orchestrations.configuration.partitions import Partition, select
from orchestrations.configuration.pipeline import Pipeline

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient


def prefixes_to_list(
    clients: Clients, pipeline: Pipeline, partition: str | None, *, now: datetime
) -> Sequence[str]:
    """The prefixes, in the container, of the blobs of a batch's dataset.

    Only the pipeline's prefix, if every blob belongs to the dataset.
    """
    source, section = pipeline.source, pipeline.dataset
    own = None if partition is None else source.partition(partition)
    if section.newest_partitions is None and section.last_days is None:
        return [source.prefix + ("" if own is None else own.prefix)]
    taken = select(
        list_partitions(clients, pipeline),
        own=own,
        now=now,
        newest=section.newest_partitions,
        last_days=section.last_days,
    )
    return [source.prefix + each.prefix for each in taken]


def list_partitions(clients: Clients, pipeline: Pipeline) -> Iterator[Partition]:
    """Every partition of a zone; lists only its folders."""
    source = pipeline.source
    container = clients.blobs.get_container_client(source.container)
    for folder in _folders(container, source.prefix, source.partition_levels()):
        path = folder.removeprefix(source.prefix)
        partition = source.partition_of(path)
        if partition is not None and partition.prefix == path:
            yield partition


def _folders(container: ContainerClient, prefix: str, levels: int) -> Iterator[str]:
    if levels == 0:
        yield prefix
        return
    from azure.storage.blob import BlobPrefix  # noqa: PLC0415 - see handlers.platform.clients

    for item in container.walk_blobs(name_starts_with=prefix, delimiter="/"):
        if isinstance(item, BlobPrefix):
            yield from _folders(container, item.name, levels - 1)
