"""The batches that may have a blob: those of its own zone or partition first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice

from handlers.landing.batch_records import (
    batches_since,
    landing_of,
    newest_batches,
    read_batch,
)
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import RecordBatch
from orchestrations.names import REQUEST_PREFIX, landing_instance, partition_of_landing

# A blob is in the first batch that was frozen after its last change, or in one of the next few.
BATCHES_SEARCHED = 20


@dataclass(frozen=True)
class BatchSearch:
    """Reads the records of batches that may have the blobs of one zone or partition."""

    clients: Clients
    pipeline: Pipeline
    partition: str | None
    """The blob's partition, if each partition is a batch."""

    def since(self, moment: datetime) -> Iterator[RecordBatch]:
        """The first batches that were frozen at or after a moment, the oldest first."""
        return self._read(batches_since(self.clients, self.pipeline.name, moment))

    def newest(self) -> Iterator[RecordBatch]:
        """The newest batches, the newest first."""
        return self._read(newest_batches(self.clients, self.pipeline.name))

    def _read(self, names: Iterator[str]) -> Iterator[RecordBatch]:
        """Read the first records of its own partition, then those of partitions that include it."""
        if self.partition is None:
            searched = islice(names, BATCHES_SEARCHED)
        else:
            found = list(names)
            searched = chain(
                islice(filter(self._is_own, found), BATCHES_SEARCHED),
                islice(filter(self._may_include, found), BATCHES_SEARCHED),
            )
        for name in searched:
            batch = read_batch(self.clients, name)
            if batch is not None:
                yield batch

    def _is_own(self, name: str) -> bool:
        """Whether a record is of the partition's landing, or of a request, for the whole zone."""
        landing = landing_of(name)
        is_request = landing.startswith(REQUEST_PREFIX)
        return is_request or landing == landing_instance(self.pipeline.name, self.partition)

    def _may_include(self, name: str) -> bool:
        """Whether a record is of a later partition, whose dataset takes earlier ones, too."""
        chosen = self.pipeline.dataset
        if chosen.newest_partitions is None and chosen.last_days is None:
            return False
        other = partition_of_landing(self.pipeline.name, landing_of(name))
        return other is not None and self.partition is not None and other > self.partition
