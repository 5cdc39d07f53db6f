"""The snapshot of Azurite's metadata: saved when the journal has outgrown it, and at the end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from localazure.storage.azurite_installation import PACKAGE, find_entry, find_node

# Sizes of documents in bytes; whether the timer would save after each; what the end has saved.
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


def test_a_change_costs_no_snapshot_of_everything(tmp_path: Path) -> None:
    modules = next(each for each in Path(find_entry()).parents if each.name == "node_modules")
    (tmp_path / "node_modules").symlink_to(modules)
    program, database = tmp_path / "program.js", tmp_path / "database.json"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [find_node(), "--require", PACKAGE / "durable_metadata.js", program, database],
        check=True,
        capture_output=True,
    )
    assert json.loads(done.stdout) == [False, True, False, True]
    (blobs,) = json.loads(database.read_text())["collections"]
    assert [len(each["text"]) for each in blobs["data"]] == [1000, 5_000_000, 4_500_000, 1_000_000]
