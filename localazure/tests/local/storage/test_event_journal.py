"""Events in the journal of Azurite's metadata, and their publication."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from localazure.outbox.publisher import publishing
from localazure.runtime.environment import Environment
from localazure.storage.azurite_installation import find_entry
from localazure.storage.event_journal import EventJournal

# A blob is overwritten, by Azurite's own code. Prints the offset in the journal at which the second
# write begins, and for each length from there the ETags after a crash.
OVERWRITTEN = """
const fs = require("fs");
process.argv[1] = ENTRY;
const path = require("path");
require(path.join(path.dirname(process.argv[3]), "blob_events.js"));
const Loki = require("lokijs");
const { default: Store } = require(
  path.join(path.dirname(ENTRY), "blob", "persistence", "LokiBlobMetadataStore.js")
);
const file = process.argv[2];
const place = { accountName: "a", name: "c" };

async function etagsAfterCrash() {
  const read = new Loki(file);
  await new Promise((resolve) => read.loadDatabase({}, resolve));
  return read.getCollection("$BLOBS_COLLECTION$").data.map(({ properties }) => properties.etag);
}

async function main() {
  const store = new Store(file, false);
  await store.init();
  await store.createContainer({}, { ...place, properties: {} });
  const put = (etag) =>
    store.createBlob(
      { contextId: etag, startTime: new Date(), request: { getHeader: () => "client" } },
      { accountName: "a", containerName: "c", name: "b", snapshot: "", isCommitted: true,
        properties: { etag } }
    );
  const journal = `${file}.journal-1`;
  await put('"1"');
  const start = fs.statSync(journal).size;
  await put('"2"');
  const written = fs.readFileSync(journal);
  const etags = [];
  for (let length = start; length <= written.length; length++) {
    fs.writeFileSync(journal, written.subarray(0, length));
    etags.push(await etagsAfterCrash());
  }
  console.log(JSON.stringify({ start, etags }));
  process.exit();
}

main();
"""


def line(event: Mapping[str, Any] | None) -> bytes:
    """A line of the journal, as `durable_metadata.js` writes it."""
    record = {"collection": "blobs"} if event is None else {"event": event, "together": []}
    text = json.dumps(record, separators=(",", ":"))
    checksum = sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]
    return f"{len(text)} {checksum} {text}\n".encode()


def event_of(change: Mapping[str, Any], number: int) -> dict[str, Any] | None:
    return None if "silent" in change else {**change, "number": number}


def ids(journal: EventJournal, limit: int = 10) -> list[Any]:
    return [event["id"] for _, event in journal.oldest(limit)]


def written(database: Path, number: int, *lines: bytes) -> None:
    with Path(f"{database}.journal-{number}").open("ab") as file:
        file.write(b"".join(lines))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "database.json"


async def test_events_are_read_again_until_they_are_published(database: Path) -> None:
    events = [line({"id": number}) for number in range(4)]
    written(database, 7, line(None), events[0], line({"silent": True}), events[1])
    written(database, 9, events[2])
    seen: list[tuple[int, Any]] = []
    while True:
        with contextlib.closing(EventJournal(database, event_of)) as journal:
            batch = journal.oldest(2)
            assert batch == journal.oldest(2)
            if not batch:
                break
            seen += batch
            await journal.published([number for number, _ in batch])
    assert [event["id"] for _, event in seen] == [0, 1, 2]
    numbers = [number for number, _ in seen]
    assert numbers == sorted(set(numbers)) == [event["number"] for _, event in seen]
    with contextlib.closing(EventJournal(database, event_of)) as journal:
        written(database, 9, events[3])
        assert ids(journal) == [3]


def test_lines_without_an_event_are_passed_for_good(database: Path) -> None:
    """So Azurite can delete their journals."""
    written(database, 1, line(None))
    written(database, 2)
    with contextlib.closing(EventJournal(database, event_of)) as journal:
        assert journal.oldest(10) == []
    assert Path(f"{database}.events-read").read_text() == f"{2:016x}{0:016x}"


def test_a_line_that_is_being_written_is_read_when_it_is_whole(database: Path) -> None:
    whole = line({"id": "ä"})
    with contextlib.closing(EventJournal(database, event_of)) as journal:
        for at in range(len(whole)):
            assert ids(journal) == []
            written(database, 1, whole[at : at + 1])
        assert ids(journal) == ["ä"]


def test_a_line_that_was_not_written_to_its_end_has_no_event(database: Path) -> None:
    torn, whole = line({"id": "torn"}), line({"id": "whole"})
    written(database, 1, torn[:-5], b"\n", whole)
    written(database, 2, torn.replace(b"torn", b"worn"), whole[:-1])  # the newline is missing
    with contextlib.closing(EventJournal(database, event_of)) as journal:
        assert ids(journal) == ["whole"]
        written(database, 3)
        assert ids(journal) == ["whole", "whole"]


def test_a_crash_keeps_a_blob_and_the_event_of_its_last_write(
    run_with_lokijs: Any, tmp_path: Path
) -> None:
    entry = json.dumps(str(find_entry()))
    found = run_with_lokijs(OVERWRITTEN.replace("ENTRY", entry), "durable_metadata.js")
    *cut, without_newline, whole = found["etags"]
    assert len(cut) > 100
    assert all(each == ['"1"'] for each in cut)
    assert without_newline == whole == ['"2"']
    database = tmp_path / "database" / "database.json"
    content = Path(f"{database}.journal-1").read_bytes()
    written(database, 2)
    for length, etags in enumerate(found["etags"], start=found["start"]):
        Path(f"{database}.journal-1").write_bytes(content[:length])
        with contextlib.closing(
            EventJournal(database, event_of=lambda change, _: dict(change))
        ) as journal:
            assert [event["etag"] for _, event in journal.oldest(10)][-1:] == etags


class OnBadDisk(EventJournal):
    """Fails to note the first event that was published."""

    failures = 1

    async def published(self, numbers: Sequence[int]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("disk I/O error")
        await super().published(numbers)


async def test_events_are_published_after_an_error_of_the_disk(
    environment: Environment, topic: Any, database: Path
) -> None:
    key, _ = environment.event_grid_keys("storage")
    with contextlib.closing(OnBadDisk(database, event_of)) as journal:
        async with publishing(journal, environment.topic_endpoint("storage"), key):
            for number in range(2):
                written(database, 1, line({"id": number}))
                journal.filled.set()
                await topic.wait_for(
                    lambda expected=number: expected in {event["id"] for event in topic.events}
                )
        assert not journal.failures
