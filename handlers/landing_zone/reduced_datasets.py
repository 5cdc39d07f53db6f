"""A frozen dataset without some of its files, which a person names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from handlers.configuration.clients import Clients
from handlers.landing_zone.manifest_parts import Link, hash_link
from handlers.landing_zone.manifests import (
    MANIFEST_FILE,
    ManifestWriter,
    manifest_folder,
    read_chunks,
)
from orchestrations.contracts.datasets import Dataset
from orchestrations.errors import InvalidRequest, name_some
from orchestrations.manifest import VERSION_HEX_DIGITS, path_of


class FilesUnknown(InvalidRequest):
    """Files that a dataset does not hold, or that are all it holds."""


def leave_out(clients: Clients, pipeline: str, dataset: Dataset, paths: Sequence[str]) -> Dataset:
    """Freeze what a dataset holds without some files, as a dataset of its own.

    Paths are as its manifest has them. The same files again give the same version and the same
    manifest.

    Raises:
        FilesUnknown: the dataset lacks one of them, or nothing would be left.
    """
    left_out = frozenset(paths)
    found: set[str] = set()
    kept = hash_link(None, Link(_without(read_chunks(clients, dataset), left_out, found)))
    unknown = sorted(left_out - found)
    if unknown:
        raise FilesUnknown(
            f"dataset version {dataset.version} has no {name_some(unknown)}: give paths as "
            f"{dataset.manifest_path}/{MANIFEST_FILE} has them, relative to the pipeline's prefix"
        )
    if not kept.blobs:
        raise FilesUnknown(f"nothing would be left of dataset version {dataset.version}")
    version = kept.link[:VERSION_HEX_DIGITS]
    folder = manifest_folder(pipeline, version)
    # The version names the blocks, too: all that reduce to it write the same lines.
    writer = ManifestWriter(clients.records, folder, version)
    if not writer.is_written:
        writer.commit(writer.stage(_without(read_chunks(clients, dataset), left_out, found)))
    return dataset.model_copy(
        update={
            "version": version,
            "blobs": kept.blobs,
            "bytes": kept.bytes,
            "quarantined": dataset.quarantined + len(left_out),
            "manifest_path": folder,
        }
    )


def _without(chunks: Iterable[bytes], paths: Collection[str], found: set[str]) -> Iterator[bytes]:
    """The lines of the other paths; adds those of `paths` that have a line to `found`."""
    for chunk in chunks:
        lines: list[bytes] = []
        for line in chunk.splitlines(keepends=True):
            path = path_of(line)
            if path in paths:
                found.add(path)
            else:
                lines.append(line)
        yield b"".join(lines)
