"""Dead letters are sent again, unchanged or changed, twice, and after a crash on the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage

from handlers.landing.batch_contents import read_quarantine
from handlers.landing.dataset_claims import claim_dataset
from handlers.notify.dead_letter_queue import DeadLetters, Rejected, sweep
from handlers.operate.redrive import RedriveOrder, redrive
from handlers.operate.redrive_changes import RedriveRefused
from handlers.platform import record_store
from handlers.platform.run_records import read_claim
from handlers.platform.service_bus import REJECTED_RUNS, RETRIES
from handlers.training.retries import Changes, handle_retry, parse_retry
from orchestrations.contracts.landing import ClaimDataset
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import RunInput
from orchestrations.names import claim_record
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.world_with_messaging import Namespace, World
from tests.unit.orchestrations.examples import DATASET, encode_manifest, run_request, version_of

PREFIX = f"digits-{DATASET.version}"
NOW = datetime(2026, 11, 22, tzinfo=UTC)
LINES = [ManifestLine(path=path, size=100, md5="0" * 32, etag=path) for path in ("a", "b", "c")]


def dead_letter_runs(world: World, *attempts: int) -> None:
    """Dead-letter several runs like `dead_letter`, in one pass over the queue.

    An attempt may be repeated, as if the queue had forgotten the first one's id.
    """
    letters = [
        Rejected(
            message_id=f"{PREFIX}-{attempt}-{number}",
            kind="run",
            body=run_request(attempt).model_dump_json(),
            reason="JobFailed",
            description="out of attempts",
            run=f"{PREFIX}-{attempt}",
        ).to_message()
        for number, attempt in enumerate(attempts)
    ]
    world.clients.message_queues.send(REJECTED_RUNS, *letters)
    assert sweep(world.clients) >= len(letters)


def send_again(world: World, run: str | None, maximum: int = 10, **changes: Any) -> list[str]:
    order = RedriveOrder(
        run=run,
        maximum=maximum,
        changes=Changes.model_validate(changes),
        by="ada",
        reason="mended",
        at=NOW,
    )
    return redrive(world.clients, order)


def requests(namespace: Namespace) -> list[RunRequest]:
    return [parse_retry(str(each)) for each in namespace.take(RETRIES)]


@pytest.fixture(scope="module", autouse=True)
def empty_queues(world: World) -> None:
    """Take what tests of other files left in the namespace that they share."""
    for dead in (True, False):
        world.namespace.take_present(REJECTED_RUNS, dead=dead)
    world.namespace.take_present(RETRIES)


@pytest.fixture
def manifest(world: World) -> None:
    world.clients.records.upload_blob(
        f"{DATASET.manifest_path}/manifest.jsonl", encode_manifest(LINES), overwrite=True
    )


def die(letters: DeadLetters, message: ServiceBusReceivedMessage) -> None:
    """Replaces `DeadLetters.take`: the process dies between sending and completing."""
    del message
    letters.release()  # as the broker does when the dead process's lock has expired
    raise KeyboardInterrupt


def test_redrive_sends_next_attempts_also_after_dying_on_the_way(
    world: World, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = Rejected(
        message_id="unreadable", kind="message", body="?", reason="InvalidRequest", description=""
    )
    world.clients.message_queues.send(REJECTED_RUNS, unreadable.to_message())
    dead_letter_runs(world, 40, 42, 44)
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "take", die)
        with pytest.raises(KeyboardInterrupt):
            send_again(world, f"{PREFIX}-42")

    assert send_again(world, f"{PREFIX}-42") == [f"{PREFIX}-43"]
    # The other letters were released, so no caller waits for a lock.
    assert send_again(world, None, 1) == [f"{PREFIX}-41"]
    assert [each.attempt for each in requests(namespace)] == [43, 41]
    left = [str(each.message_id) for each in namespace.take_present(REJECTED_RUNS, dead=True)]
    assert left == ["unreadable", f"{PREFIX}-44-2"]


def test_a_run_that_was_dead_lettered_twice_is_redriven_once(
    world: World, namespace: Namespace
) -> None:
    dead_letter_runs(world, 50, 50)
    assert send_again(world, f"{PREFIX}-50") == [f"{PREFIX}-51"]
    assert [each.attempt for each in requests(namespace)] == [51]
    left = [each.body for each in namespace.take_present(REJECTED_RUNS, dead=True)]
    assert not any(run_request(50).model_dump_json().encode() in b"".join(body) for body in left)


async def test_the_first_redrive_of_a_run_decides_and_can_be_repeated(
    world: World, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letter_runs(world, 60)
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "take", die)
        with pytest.raises(KeyboardInterrupt):
            send_again(world, f"{PREFIX}-60", attempts=2)
    # It continues as recorded. A caller with other changes is refused.
    with pytest.raises(RedriveRefused, match=f"redriven as {PREFIX}-61 by ada") as refused:
        send_again(world, f"{PREFIX}-60", attempts=3)
    assert (refused.value.kind, refused.value.where) == ("already-redriven", "changes")
    for _ in range(2):
        assert send_again(world, f"{PREFIX}-60", attempts=2) == [f"{PREFIX}-61"]
    (request,) = requests(namespace)
    assert (request.attempt, request.retry.attempts) == (61, 62)
    assert namespace.take_present(REJECTED_RUNS, dead=True) == []

    # The message stays on its queue until the run is started, however often that fails.
    hub: Any = TaskHub()

    async def refuse(*_: Any) -> str:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(hub, "start_new", refuse)
        with pytest.raises(ConnectionError):
            await handle_retry(world.clients, hub, request.model_dump_json())
    for _ in range(2):
        await handle_retry(world.clients, hub, request.model_dump_json())
    assert hub.started == [f"{PREFIX}-61"]


async def test_changes_count_also_where_the_attempt_without_them_is_scheduled_already(
    world: World, namespace: Namespace
) -> None:
    # The queue drops an id that another test has sent: each test has attempts of its own.
    dead_letter_runs(world, 30)
    send_again(world, f"{PREFIX}-30", attempts=2)
    (changed,) = requests(namespace)
    hub: Any = TaskHub()
    scheduled = run_request(31).model_dump_json()
    assert await handle_retry(world.clients, hub, scheduled) == f"{PREFIX}-31"
    started = RunInput.from_dict(hub.documents[f"{PREFIX}-31"]["input"])
    assert started.request == changed
    assert changed.retry.attempts == 32


def test_of_two_redrives_at_once_one_decides(world: World, namespace: Namespace) -> None:
    dead_letter_runs(world, 65)

    def try_with(attempts: int) -> list[str] | str:
        try:
            return send_again(world, f"{PREFIX}-65", attempts=attempts)
        except RedriveRefused as refusal:
            return refusal.kind

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(try_with, (2, 3)))
    # A call may have missed the letter while the other held it; repeated, it gets an answer.
    answers = [try_with(2), try_with(3)]
    assert sorted(answers, key=str) == sorted([[f"{PREFIX}-66"], "already-redriven"], key=str)
    (request,) = requests(namespace)
    assert request.retry.attempts == (67 if answers[0] == [f"{PREFIX}-66"] else 68)


@pytest.mark.usefixtures("manifest")
def test_without_files_it_is_claimed_trained_on_and_stays_without_them(
    world: World, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letter_runs(world, 90)
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "take", die)
        with pytest.raises(KeyboardInterrupt):
            send_again(world, f"{PREFIX}-90", without_files=["a"])
    # A redrive of everything sends the same smaller dataset, and not the whole one.
    (following,) = send_again(world, None, 1)
    (request,) = requests(namespace)
    version = request.dataset.version
    assert (following, request.dataset.blobs) == (f"digits-{version}-91", 2)
    claimed = read_claim(world.clients, claim_record("digits", version))
    assert claimed is not None
    assert claimed.claim.run == following
    left_out = read_quarantine(world.clients, "digits")
    assert left_out["a", "a"] == f"left out by ada: mended (run {PREFIX}-90)"
    kept = record_store.read(world.clients.records, f"runs/{PREFIX}-90/redrive.json")
    assert kept is not None
    assert kept["changes"]["without_files"] == ["a"]
    assert request.redrive is not None
    assert request.redrive.record == f"runs/{PREFIX}-90/redrive.json"


@pytest.mark.usefixtures("manifest")
def test_what_is_left_may_be_trained_on_already(world: World, namespace: Namespace) -> None:
    dead_letter_runs(world, 80)
    with pytest.raises(RedriveRefused, match="has no 'x'"):
        send_again(world, f"{PREFIX}-80", without_files=["x"])
    smaller = DATASET.model_copy(update={"version": without("b")})
    other = run_request().model_copy(update={"dataset": smaller})
    claim_dataset(world.clients, ClaimDataset(request=other, batch="b@t"))
    with pytest.raises(RedriveRefused, match=f"run {other.run} has trained") as refused:
        send_again(world, f"{PREFIX}-80", without_files=["b"])
    assert (refused.value.kind, refused.value.where) == (
        "content-claimed",
        "changes.without_files",
    )
    # Nothing was recorded, and no caller waits for a lock.
    (following,) = send_again(world, f"{PREFIX}-80", without_files=["c"])
    assert [each.dataset.blobs for each in requests(namespace)] == [2]
    assert following.endswith("-81")


def without(path: str) -> str:
    return version_of(line for line in LINES if line.path != path)
