"""Freezes a dataset without files that a person names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from handlers.landing.manifest_parts import Link, hash_link
from handlers.platform.clients import Clients
from handlers.platform.manifests import (
    MANIFEST_FILE,
    ManifestWriter,
    manifest_folder,
    read_chunks,
)
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import VERSION_HEX_DIGITS, path_of
from orchestrations.errors import InvalidRequest, name_some


class FilesUnknown(InvalidRequest):
    """The dataset lacks the named files, or has no others."""


def leave_out(clients: Clients, pipeline: str, dataset: Dataset, paths: Sequence[str]) -> Dataset:
    """Freeze a dataset without some of its files as a new dataset.

    Paths are those of the manifest. Idempotent: the same files give the same version and manifest.

    Raises:
        FilesUnknown: the dataset lacks one of the files, or nothing would be left.
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
    # The version also names the blocks, since every writer of this version writes the same lines.
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
    """The lines of the other paths; adds the members of `paths` that have a line to `found`."""
    for chunk in chunks:
        lines: list[bytes] = []
        for line in chunk.splitlines(keepends=True):
            path = path_of(line)
            if path in paths:
                found.add(path)
            else:
                lines.append(line)
        yield b"".join(lines)
