"""Activity `measure_answers`: measure the answers of deployments in Azure ML's data collector.

The collector appends to blobs `modelDataCollector/<endpoint>/<deployment>/<collection>/<time>/…` of
the workspace's default datastore, also for mirrored requests. Blobs are read newest first, at most
`MOST_BYTES` per deployment and collection, to bound memory and time.

https://learn.microsoft.com/azure/machine-learning/how-to-collect-production-data
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from azure.core.exceptions import ResourceNotFoundError

from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from orchestrations.contracts.rollouts import AnswerMeasurements, MeasureAnswers
from orchestrations.rollout.answer_metrics import Measuring, Row, parse_collected, parse_line

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

FOLDER = "modelDataCollector"
MOST_BYTES = 16 * 1024 * 1024
MOST_DAYS = 8
"""More than the longest baking time of a step, a week."""


@activity
def measure_answers(clients: Clients, request: MeasureAnswers) -> AnswerMeasurements:
    """Measure the guards on the collected answers since the step began."""
    measuring = [Measuring(guard) for guard in request.guards]
    for collection in {guard.collection for guard in request.guards}:
        together = [each for each in measuring if each.guard.collection == collection]
        for row in _collected_rows(clients, request, request.deployment, collection):
            for each in together:
                each.add(row)
        compared = [each for each in together if each.guard.is_compared]
        for deployment in request.current if compared else ():
            for row in _collected_rows(clients, request, deployment, collection):
                for each in compared:
                    each.compare(row)
    landed = clients.blobs.get_container_client(request.container)
    for each in measuring:
        if each.guard.labels is not None:
            for line in _newest_lines(landed, each.guard.labels, since=request.since):
                each.compare(parse_line(line))
    return AnswerMeasurements(guards=[each.result() for each in measuring])


def _collected_rows(
    clients: Clients, request: MeasureAnswers, deployment: str, collection: str
) -> Iterator[Row]:
    """Rows of a deployment's answers since the step began, newest blobs first."""
    container = str(clients.default_datastore.container_name)
    collected = clients.workspace_blobs.get_container_client(container)
    folder = f"{FOLDER}/{request.endpoint}/{deployment}/{collection}/"
    prefixes = _days(folder, request.since, datetime.now(UTC))
    for line in _newest_lines(collected, *prefixes, since=request.since):
        yield from parse_collected(line, since=request.since)


def _days(folder: str, since: datetime, now: datetime) -> list[str]:
    """The collector's folders of the days since a time, newest first, at most `MOST_DAYS`."""
    days = min((now.date() - since.astimezone(UTC).date()).days + 1, MOST_DAYS)
    return [f"{folder}{now - timedelta(days=day):%Y/%m/%d}/" for day in range(days)]


def _newest_lines(container: ContainerClient, *prefixes: str, since: datetime) -> Iterator[bytes]:
    """The lines of blobs that were modified since a time, newest blobs first, up to `MOST_BYTES`.

    Of a blob that exceeds the limit, the last lines. A missing container has no lines.
    """
    left = MOST_BYTES
    for prefix in prefixes:
        try:
            listed = [
                (blob.last_modified, str(blob.name), int(blob.size))
                for blob in container.list_blobs(name_starts_with=prefix)
                if blob.last_modified >= since.replace(microsecond=0) and blob.size
            ]
        except ResourceNotFoundError:
            return
        for _, name, size in sorted(listed, reverse=True):
            length = min(size, left)
            content = container.download_blob(name, offset=size - length, length=length).readall()
            lines = content.split(b"\n")
            yield from lines if length == size else lines[1:]  # the first line is cut
            left -= length
            if left <= 0:
                return
