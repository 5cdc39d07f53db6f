// Preloaded into Azurite (`node --require`): the cost of a listing depends on its page, not on the account.
//
// For each page, Azurite reads all blobs of the account and sorts those after the previous page: with
// 200,000 blobs more than a second, even for one name, during which all other requests wait. Here the
// names of a container are kept sorted, and a page begins at its first name.
//
// Azurite's listBlobs runs unchanged, on a query whose `find` and `sort` do nothing.
"use strict";

const path = require("path");
// Azurite's own: the script to run is in its installation, this file is not.
const Loki = require(require.resolve("lokijs", { paths: [process.argv[1]] }));
const Store = require(
  path.join(path.dirname(process.argv[1]), "blob", "persistence", "LokiBlobMetadataStore.js")
).default;

const orders = new WeakMap(); // collection of blobs -> account and container -> NameOrder

/** Names in order; of one name its snapshots, oldest first, and then the blob itself, as on Azure. */
function compareEntries(a, b) {
  if (a.name !== b.name) return a.name < b.name ? -1 : 1;
  if (a.snapshot === b.snapshot) return 0;
  return a.snapshot !== "" && (b.snapshot === "" || a.snapshot < b.snapshot) ? -1 : 1;
}

/** The blobs of one container, sorted by name. Entries of deleted blobs are removed later. */
class NameOrder {
  constructor(collection) {
    this.collection = collection;
    this.entries = []; // { name, snapshot, id }, sorted
    this.added = []; // not sorted in yet
    this.purgeAt = 1000; // number of entries at which those of deleted blobs are removed
  }

  add(document) {
    const { name, snapshot, $loki: id } = document;
    this.added.push({ name, snapshot, id });
  }

  sorted() {
    if (this.added.length > 0) {
      this.entries = this.entries.concat(this.added.sort(compareEntries)).sort(compareEntries);
      this.added = [];
      if (this.entries.length > this.purgeAt) {
        this.entries = this.entries.filter((entry) => this.collection.get(entry.id));
        this.purgeAt = Math.max(this.purgeAt, 2 * this.entries.length);
      }
    }
    return this.entries;
  }

  /** The position of the first name that is not before this one. */
  firstFrom(name) {
    const entries = this.sorted();
    let [low, high] = [0, entries.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (entries[middle].name < name) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The documents whose names have the prefix, starting at a name. */
  *documents(prefix, from) {
    const entries = this.sorted();
    for (let at = this.firstFrom(from); at < entries.length; at++) {
      if (!entries[at].name.startsWith(prefix)) return;
      const document = this.collection.get(entries[at].id);
      if (document) yield document;
    }
  }
}

function keyOf(account, container) {
  return `${account}/${container}`;
}

/** The order of one container; the first call makes the orders of all containers. */
function orderOf(collection, account, container) {
  let ofContainers = orders.get(collection);
  if (!ofContainers) {
    ofContainers = new Map();
    orders.set(collection, ofContainers);
    for (const document of collection.data) addTo(ofContainers, collection, document);
  }
  return ofContainers.get(keyOf(account, container)) ?? new NameOrder(collection);
}

function addTo(ofContainers, collection, document) {
  const key = keyOf(document.accountName, document.containerName);
  if (!ofContainers.has(key)) ofContainers.set(key, new NameOrder(collection));
  ofContainers.get(key).add(document);
}

/** The methods of a LokiJS result set that listBlobs calls, over sorted documents. */
class OrderedResults {
  constructor(documents) {
    this.documents = documents;
    this.predicates = [];
  }

  find() {
    return this;
  }

  where(predicate) {
    this.predicates.push(predicate);
    return this;
  }

  sort() {
    return this;
  }

  offset() {
    return this; // it always equals the end of the previous read
  }

  limit(count) {
    this.most = count;
    return this;
  }

  data() {
    const found = [];
    while (found.length < this.most) {
      const { done, value } = this.documents.next();
      if (done) break;
      if (this.predicates.every((predicate) => predicate(value))) found.push(value);
    }
    return found;
  }
}

const { insertOne } = Loki.Collection.prototype;
Loki.Collection.prototype.insertOne = function (document, bulk) {
  const inserted = insertOne.call(this, document, bulk);
  const ofContainers = orders.get(this);
  if (inserted && ofContainers) addTo(ofContainers, this, inserted);
  return inserted;
};

const { listBlobs } = Store.prototype;
Store.prototype.listBlobs = function (...parameters) {
  const [, account, container, , blob, prefix = "", , marker = "", , , startFrom = ""] = parameters;
  if (account === undefined || container === undefined || blob !== undefined) {
    return listBlobs.apply(this, parameters);
  }
  const from = [prefix, marker, startFrom].reduce((a, b) => (a > b ? a : b));
  const order = orderOf(this.db.getCollection(this.BLOBS_COLLECTION), account, container);
  const documents = order.documents(prefix, from);
  const ordered = Object.create(this);
  ordered.db = { getCollection: () => ({ chain: () => new OrderedResults(documents) }) };
  return listBlobs.apply(ordered, parameters);
};

module.exports = { orderOf };
