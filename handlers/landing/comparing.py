"""Comparisons of a batch with the last trained one of its zone or partition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from handlers.landing.batch_records import last_batch
from handlers.landing.held_batches import is_released
from handlers.landing.pauses import read_pause
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.manifests import read_chunks
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import BatchComparison, CompareBatch
from orchestrations.contracts.manifest import hashed_content

# The name of a copy in a line. In a path, quotes are escaped, so this cannot match there.
_FILE = re.compile(rb', "file": "[^"]*"(?=\}$)', re.MULTILINE)


@activity
def compare_batch(clients: Clients, request: CompareBatch) -> BatchComparison:
    """Compare a frozen batch with the last trained batch of its zone or partition."""
    dataset = request.dataset
    last = last_batch(clients, request.pipeline, dataset.partition)
    trained = None if last is None else last.last_trained
    pause = read_pause(clients, request.pipeline)
    return BatchComparison(
        last_trained_blobs=None if trained is None else trained.blobs + trained.quarantined,
        only_deletions=trained is not None and _only_deletions(clients, trained, dataset),
        data_changed_in_a_row=0 if last is None else last.data_changed_in_a_row,
        released=is_released(clients, request.pipeline, dataset.version),
        paused=None if pause is None else str(pause),
    )


def _only_deletions(clients: Clients, before: Dataset, after: Dataset) -> bool:
    """Whether `after` differs from `before` only by deleted blobs.

    The manifests are read only if `after` has fewer blobs. Newly quarantined files are not
    deletions: the rest of their batch has not been trained on yet.
    """
    if after.blobs >= before.blobs or after.quarantined > before.quarantined:
        return False
    return is_subset(_contents(clients, after), _contents(clients, before))


def is_subset(small: Iterable[object], large: Iterable[object]) -> bool:
    """Whether a sequence is a subsequence of another."""
    rest = iter(large)
    return all(item in rest for item in small)


def _contents(clients: Clients, dataset: Dataset) -> Iterator[bytes]:
    """What each line adds to the dataset version; rewriting unchanged content does not change it.

    Names of copies are left out. Lines are not parsed as JSON: there may be ten million.
    """
    for chunk in read_chunks(clients, dataset):
        yield from hashed_content(_FILE.sub(b"", chunk)).splitlines()
