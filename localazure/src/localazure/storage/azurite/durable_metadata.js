// Preloaded into Azurite (`node --require`): makes its metadata survive kill -9.
//
// Azurite keeps metadata in LokiJS, in memory, and saves a snapshot every 5 s: a write acknowledged
// since the last one is lost when the process is killed. Here every change of a LokiJS document is
// also appended to a journal beside the snapshot, before Azurite answers, and the journal is applied
// when the snapshot is loaded. Blob contents need no such help: Azurite writes them to files first.
//
// A journal line holds a document's whole new state under its $loki id. Changes that are made `atomically`
// share a line, with the event that they cause (`blob_events.js`). The storage part reads the events from
// the journal (`event_journal.py`), and keeps in a file beside it up to where it has published them.
// A line begins with the length and the checksum of its record. A line that was not written to its end,
// since the process died or the disk was full, is skipped when it is read, with a message: its request
// was never acknowledged. After a full disk, the change stays in memory until the next snapshot.
//
// A save starts a new journal at the moment it serialises. The snapshot has the number of that journal.
// The older ones are deleted when the snapshot has its final name and their events are published.
//
// A snapshot costs time for every document there is, and nothing is answered meanwhile. So Azurite's
// own timer saves only when the journals have grown as large as the snapshot: a change then costs the
// same however many documents there are.
//
// The journal is written but not fsynced (neither are Azurite's contents): it survives the death of
// the process, not of the machine.
"use strict";

const crypto = require("crypto");
const fs = require("fs");
const path = require("path");
// Azurite's own: the script to run is in its installation, this file is not.
const Loki = require(require.resolve("lokijs", { paths: [process.argv[1]] }));

const SMALLEST_SAVED_BYTES = 4 * 1024 * 1024;
const journals = new Map(); // file name of a database -> its open Journal
const databaseOf = new WeakMap(); // collection -> the Loki it belongs to
const NEWLINE = Buffer.from("\n");
let together; // records of changes that share a line

class Journal {
  constructor(database, number) {
    this.number = number;
    this.bytes = 0;
    this.isTorn = false;
    this.descriptor = fs.openSync(`${database}.journal-${number}`, "a");
  }

  append(record) {
    const text = Buffer.from(JSON.stringify(record));
    // A line that was not written to its end must not continue in this one.
    const start = this.isTorn ? NEWLINE : "";
    const head = Buffer.from(`${start}${text.length} ${checksum(text)} `);
    const line = Buffer.concat([head, text, NEWLINE]);
    this.isTorn = true;
    for (let written = 0; written < line.length; ) {
      written += fs.writeSync(this.descriptor, line, written);
    }
    this.isTorn = false;
    this.bytes += line.length;
  }

  close() {
    fs.closeSync(this.descriptor);
  }
}

function checksum(text) {
  return crypto.createHash("sha1").update(text).digest("hex").slice(0, 16);
}

function journalNumbers(database) {
  const prefix = `${path.basename(database)}.journal-`;
  return fs
    .readdirSync(path.dirname(database))
    .filter((name) => name.startsWith(prefix))
    .map((name) => Number(name.slice(prefix.length)))
    .sort((a, b) => a - b);
}

function readJournal(file) {
  const records = [];
  const content = fs.readFileSync(file);
  for (let start = 0, end; start < content.length; start = end + 1) {
    end = content.indexOf(NEWLINE, start);
    if (end < 0) end = content.length;
    const text = readLine(content.subarray(start, end));
    if (text) records.push(JSON.parse(text));
    else if (end > start) console.error(`${file}: skipped ${end - start} bytes at ${start}, a write that was not finished`);
  }
  return records.flatMap((record) => record.together ?? [record]);
}

/** The record of a line, or undefined if the line is not whole. */
function readLine(line) {
  const [head, length, sum] = /^(\d+) ([0-9a-f]+) /.exec(line.toString("latin1", 0, 64)) ?? [];
  if (!head) return undefined;
  const text = line.subarray(head.length);
  return text.length === Number(length) && checksum(text) === sum ? text : undefined;
}

/** The first journal with events that are not published; Infinity if nobody reads events. */
function firstUnread(database) {
  try {
    return parseInt(fs.readFileSync(`${database}.events-read`, "latin1").slice(0, 16), 16);
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    return Infinity;
  }
}

/** The serialised form of a database with everything applied that its journals hold. */
function applyJournals(database, snapshot) {
  const collections = new Map(
    (snapshot.collections ?? []).map((collection) => [
      collection.name,
      { collection, documents: new Map(collection.data.map((doc) => [doc.$loki, doc])) },
    ])
  );
  for (const number of journalNumbers(database)) {
    if (number < (snapshot.firstJournal ?? 0)) continue;
    for (const record of readJournal(`${database}.journal-${number}`)) {
      const target = collections.get(record.collection);
      if (record.create) {
        const collection = { ...record.create, data: [] };
        if (!target) collections.set(record.collection, { collection, documents: new Map() });
      } else if (record.drop) {
        collections.delete(record.collection);
      } else if (!target) {
        continue; // dropped later on, and the snapshot knows it already
      } else if (record.put) {
        target.documents.set(record.put.$loki, record.put);
        target.collection.maxId = Math.max(target.collection.maxId, record.put.$loki);
      } else {
        for (const id of record.remove) target.documents.delete(id);
      }
    }
  }
  snapshot.collections = [...collections.values()].map(({ collection, documents }) => {
    // LokiJS looks ids up by binary search.
    collection.data = [...documents.values()].sort((a, b) => a.$loki - b.$loki);
    return collection;
  });
  return snapshot;
}

function record(collection, change) {
  const database = databaseOf.get(collection);
  const journal = database && journals.get(database.filename);
  const record = { collection: collection.name, ...change };
  if (together) together.push(record);
  else if (journal) journal.append(record);
}

/** Make changes, without a pause, that a crash keeps or loses as a whole, with their event, if any. */
function atomically(database, change, event) {
  const line = { event, together: (together = []) };
  try {
    return change();
  } catch (error) {
    delete line.event;
    throw error;
  } finally {
    together = undefined;
    journals.get(database.filename)?.append(line);
  }
}

/** Replace a method by `replacement(original)`. */
function wrap(prototype, name, replacement) {
  const original = prototype[name];
  if (typeof original !== "function") {
    throw new Error(`durable_metadata.js: this LokiJS has no ${name}; it knows version 1.5`);
  }
  prototype[name] = replacement(original);
}

wrap(Loki.prototype, "loadJSONObject", (original) => function (snapshot, options) {
  original.call(this, applyJournals(this.filename, snapshot), options);
  for (const collection of this.collections) collection.ensureAllIndexes(true);
});

wrap(Loki.prototype, "saveDatabaseInternal", (original) => function (callback) {
  // Serializing is synchronous: no change falls between the new journal and the snapshot.
  const previous = journals.get(this.filename);
  let next;
  try {
    next = new Journal(this.filename, (journalNumbers(this.filename).pop() ?? 0) + 1);
  } catch (error) {
    return notSaved(this, error, callback);
  }
  journals.set(this.filename, next);
  if (previous) previous.close();
  this.firstJournal = next.number;
  original.call(this, (error) => {
    if (error) return notSaved(this, error, callback);
    const firstKept = Math.min(next.number, firstUnread(this.filename));
    for (const number of journalNumbers(this.filename)) {
      if (number < firstKept) fs.unlinkSync(`${this.filename}.journal-${number}`);
    }
    if (callback) callback();
  });
});

/** The journals have what the last snapshot lacks: Azurite continues, and tries again later. */
function notSaved(database, error, callback) {
  console.error(`${database.filename}: no snapshot was saved, its journals are kept: ${error.message}`);
  if (callback) callback(error);
}

wrap(Loki.prototype, "autosaveDirty", (original) => function () {
  const journal = journals.get(this.filename);
  // Without a journal there was no save yet. `close` asks, too, and has stopped the timer before.
  if (!journal || !this.autosaveHandle) return original.call(this);
  const saved = fs.statSync(this.filename, { throwIfNoEntry: false });
  return journal.bytes >= Math.max(SMALLEST_SAVED_BYTES, saved ? saved.size : 0);
});

wrap(Loki.prototype, "addCollection", (original) => function (name, options) {
  const known = this.collections.some((collection) => collection.name === name);
  const collection = original.call(this, name, options);
  databaseOf.set(collection, this);
  if (!known) {
    const { data, ...description } = JSON.parse(JSON.stringify(collection, this.serializeReplacer));
    record(collection, { create: description });
  }
  return collection;
});

wrap(Loki.prototype, "removeCollection", (original) => function (name) {
  const collection = this.getCollection(name);
  original.call(this, name);
  if (collection) {
    const journal = journals.get(this.filename);
    if (journal) journal.append({ collection: name, drop: true });
  }
});

const collectionPrototype = Loki.Collection.prototype;

wrap(collectionPrototype, "insertOne", (original) => function (doc, bulk) {
  const inserted = original.call(this, doc, bulk);
  if (inserted) record(this, { put: inserted });
  return inserted;
});

wrap(collectionPrototype, "update", (original) => function (doc) {
  const updated = original.call(this, doc);
  if (!Array.isArray(doc)) record(this, { put: updated }); // of an array: once for each, by itself
  return updated;
});

wrap(collectionPrototype, "remove", (original) => function (doc) {
  const document = typeof doc === "number" ? this.get(doc) : doc;
  const id = Array.isArray(document) ? undefined : document && document.$loki;
  const removed = original.call(this, doc);
  if (id !== undefined) record(this, { remove: [id] }); // an array goes by removeBatchByPositions
  return removed;
});

wrap(collectionPrototype, "removeBatchByPositions", (original) => function (positions) {
  const ids = positions.map((position) => this.data[position].$loki);
  original.call(this, positions);
  record(this, { remove: ids });
});

module.exports = { atomically };
