"""The activity `measure_answers` reads the data collector's blobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from handlers.rollout import observing
from handlers.rollout.observing import measure_answers
from orchestrations.configuration.deploy import AnswerGuard
from orchestrations.contracts.rollouts import AnswerMeasurement, MeasureAnswers
from tests.local.handlers.cloud import Cloud

CONTAINER = "azureml-blobstore"
MEAN = AnswerGuard(metric="mean", field="price", max=1, max_change=1)
numbers = count(1)


@pytest.fixture
def endpoint(cloud: Cloud) -> str:
    container = cloud.clients.workspace_blobs.get_container_client(CONTAINER)
    if not container.exists():
        container.create_container()
    return f"collecting{next(numbers)}"


@pytest.fixture
def collect(cloud: Cloud, endpoint: str) -> Callable[..., int]:
    """Write a blob as the data collector does; returns its size in bytes."""

    def write(deployment: str, folder: str, name: str, prices: Iterable[float]) -> int:
        time = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        lines = [json.dumps({"time": time, "data": [{"price": each}]}) for each in prices]
        content = "".join(f"{line}\n" for line in lines).encode()
        path = f"modelDataCollector/{endpoint}/{deployment}/model_outputs/{folder}/{name}.jsonl"
        blobs = cloud.clients.workspace_blobs
        blobs.get_blob_client(CONTAINER, path).upload_blob(content)
        return len(content)

    return write


def measure(cloud: Cloud, endpoint: str, since: datetime) -> AnswerMeasurement:
    request = MeasureAnswers(
        endpoint=endpoint,
        deployment="model-2",
        current=["model-1", "blue"],
        container="landing",
        guards=[MEAN],
        since=since,
    )
    (found,) = measure_answers(cloud.clients, request).guards
    return found


def test_nothing_is_measured_where_nothing_was_collected(cloud: Cloud, endpoint: str) -> None:
    found = measure(cloud, endpoint, datetime.now(UTC))
    assert (found.answers, found.value, found.compared) == (0, None, 0)


def test_answers_of_all_days_and_deployments_are_read(
    cloud: Cloud, endpoint: str, collect: Callable[..., int]
) -> None:
    since = datetime.now(UTC) - timedelta(days=1)
    collect("model-2", f"{since:%Y/%m/%d/23}", "a", [1, 2])
    collect("model-2", f"{datetime.now(UTC):%Y/%m/%d}", "b", [3])
    collect("model-1", f"{since:%Y/%m/%d/23/59}", "c", [5])
    collect("blue", f"{since:%Y/%m/%d/23}", "d", [7])
    found = measure(cloud, endpoint, since)
    assert (found.answers, found.value) == (3, 2.0)
    assert (found.compared, found.reference) == (2, 6.0)
    later = measure(cloud, endpoint, datetime.now(UTC) + timedelta(seconds=2))
    assert later.answers == 0, "they were written before"


def test_the_newest_answers_are_read_where_there_are_too_many(
    cloud: Cloud,
    endpoint: str,
    collect: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = datetime.now(UTC)
    today = f"{now:%Y/%m/%d}"
    collect("model-2", f"{now - timedelta(days=1):%Y/%m/%d}", "a", [100] * 9)
    size = collect("model-2", today, "b", [*[100] * 5, 1, 2])
    monkeypatch.setattr(observing, "MOST_BYTES", size // 7 * 2 + 5)
    found = measure(cloud, endpoint, now - timedelta(days=1))
    assert (found.answers, found.value) == (2, 1.5)
