"""The snapshot of Azurite's metadata: saved when the journal has outgrown it, and at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Inserts documents by size in bytes, prints whether autosave is due after each, saves at the end.
PROGRAM = """
const Loki = require("lokijs");
const database = new Loki(process.argv[2], { autosave: true, autosaveInterval: 1e6 });
const isDue = [];
database.saveDatabase(() => {
  const blobs = database.addCollection("blobs");
  const insert = (bytes) => {
    blobs.insert({ text: "x".repeat(bytes) });
    isDue.push(database.autosaveDirty());
  };
  insert(1000);
  insert(5e6);
  database.saveDatabase(() => {
    insert(4.5e6);
    insert(1e6);
    database.close(() => console.log(JSON.stringify(isDue)));
  });
});
"""


# Two documents change their names together; the journal is then truncated at each byte.
ATOMIC = """
const fs = require("fs");
const Loki = require("lokijs");
const { atomically } = require(process.argv[3]);
const database = new Loki(process.argv[2]);
const journal = `${process.argv[2]}.journal-2`;
const saved = () => new Promise((resolve) => database.saveDatabase(resolve));

async function namesAfterCrash() {
  const read = new Loki(process.argv[2]);
  await new Promise((resolve) => read.loadDatabase({}, resolve));
  return read.collections.flatMap(({ data }) => data.map(({ name }) => name));
}

async function main() {
  const collections = ["blobs", "blocks"].map((name) => database.addCollection(name));
  for (const collection of collections) collection.insert({ name: "old" });
  await saved();
  await saved();
  atomically(database, () => {
    for (const collection of collections) {
      collection.remove(collection.data[0]);
      collection.insert({ name: "new" });
    }
  });
  const written = fs.readFileSync(journal);
  const found = [];
  for (let length = 0; length <= written.length; length++) {
    fs.writeFileSync(journal, written.subarray(0, length));
    found.push(await namesAfterCrash());
  }
  console.log(JSON.stringify(found));
}

main();
"""


# Fills a disk with large documents until it is full, inserts small ones, makes room, and goes on.
# Prints the names that were acknowledged, and those that are read after a crash.
FULL = """
const fs = require("fs");
const path = require("path");
const Loki = require("lokijs");
const database = new Loki(process.argv[2]);
const ballast = path.join(path.dirname(process.argv[2]), "ballast");
const saved = () => new Promise((resolve) => database.saveDatabase(resolve));
const acknowledged = [];
const refused = [];

async function main() {
  fs.writeFileSync(ballast, "x".repeat(300000));
  const blobs = database.addCollection("blobs");
  const insert = (bytes) => {
    const name = acknowledged.length + refused.length;
    try {
      blobs.insert({ name, text: "x".repeat(bytes) });
      acknowledged.push(name);
    } catch (error) {
      if (error.code !== "ENOSPC") throw error;
      refused.push(name);
    }
  };
  if (await saved()) throw new Error("there was room for the first snapshot");
  while (!refused.length) insert(30000);
  for (let i = 0; i < 50; i++) insert(i);
  if (!(await saved())) throw new Error("there was no room for this snapshot");
  for (let i = 0; i < 50; i++) insert(i);
  fs.unlinkSync(ballast);
  for (let i = 0; i < 50; i++) insert(i);

  const read = new Loki(process.argv[2]);
  await new Promise((resolve) => read.loadDatabase({}, resolve));
  const names = read.getCollection("blobs").data.map(({ name }) => name);
  console.log(JSON.stringify({ acknowledged, refused, names }));
}

main();
"""


# Saves snapshots while events are published later and later. Then a journal from before the last
# snapshot is lost. Prints the journals after each save, and the names that are read.
KEPT = """
const fs = require("fs");
const path = require("path");
const Loki = require("lokijs");
const database = new Loki(process.argv[2]);
const saved = () => new Promise((resolve) => database.saveDatabase(resolve));
const position = `${process.argv[2]}.events-read`;
const journals = [];

async function main() {
  const blobs = database.addCollection("blobs");
  await saved();
  for (const journal of ["0", "1", "2", "3"]) {
    fs.writeFileSync(position, journal.padStart(16, "0").padEnd(32, "0"));
    if (blobs.count()) blobs.remove(blobs.data[0]);
    else blobs.insert({ name: "old" });
    await saved();
    const names = fs.readdirSync(path.dirname(process.argv[2])).map((name) => name.split("-"));
    journals.push(names.filter(([file]) => file.endsWith("journal")).map(([, number]) => number));
  }
  fs.unlinkSync(`${process.argv[2]}.journal-4`);
  const loaded = new Loki(process.argv[2]);
  await new Promise((resolve) => loaded.loadDatabase({}, resolve));
  const names = loaded.getCollection("blobs").data.map(({ name }) => name);
  console.log(JSON.stringify({ journals, names }));
}

main();
"""


# Azurite starts with an empty account from metadata that some other program wrote.
FOREIGN = """
const fs = require("fs");
const Loki = require("lokijs");
fs.writeFileSync(process.argv[2], JSON.stringify({ data: {} }));
const read = new Loki(process.argv[2]);
read.loadDatabase({}, (error) => console.log(JSON.stringify([`${error}`, read.collections])));
"""


def test_metadata_without_collections_is_empty_as_in_lokijs(run_with_lokijs: Any) -> None:
    assert run_with_lokijs(FOREIGN, "durable_metadata.js") == ["null", []]


def test_a_full_disk_loses_nothing_that_was_acknowledged(run_with_lokijs: Any) -> None:
    found = run_with_lokijs(FULL, "durable_metadata.js", disk_bytes=1_000_000)
    assert found["refused"]
    assert set(found["names"]) >= set(found["acknowledged"])
    assert max(found["acknowledged"]) > max(found["refused"])  # it goes on when there is room


def test_journals_are_kept_until_their_events_are_published(run_with_lokijs: Any) -> None:
    found = run_with_lokijs(KEPT, "durable_metadata.js")
    assert found["journals"] == [[*"12"], [*"123"], [*"234"], [*"345"]]
    assert found["names"] == []  # the snapshot has what they hold


def test_a_crash_keeps_or_loses_a_rename_as_a_whole(run_with_lokijs: Any) -> None:
    *cut, without_newline, whole = run_with_lokijs(ATOMIC, "durable_metadata.js")
    assert len(cut) > 100
    assert all(each == ["old", "old"] for each in cut)
    assert without_newline == whole == ["new", "new"]


def test_a_change_costs_no_snapshot_of_everything(run_with_lokijs: Any, tmp_path: Path) -> None:
    database = tmp_path / "database" / "database.json"
    assert run_with_lokijs(PROGRAM, "durable_metadata.js") == [False, True, False, True]
    (blobs,) = json.loads(database.read_text())["collections"]
    assert [len(each["text"]) for each in blobs["data"]] == [1000, 5_000_000, 4_500_000, 1_000_000]
