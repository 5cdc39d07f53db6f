// Preloaded into Azurite (`node --require`): a change of a blob is in the journal together with its event.
//
// The storage part publishes the events that it finds in the journal (`event_journal.py`). A crash keeps
// a change and its event, or neither.
//
// Which operations have an event: https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage
//
// Azurite has no `dfs` endpoint. For a request that came to it, the storage part sends a header with what
// the event gets from that request, or `null` if there is no event (`hierarchy.py`). The proxy does not
// forward this header of clients.
"use strict";

const path = require("path");
const { atomically } = require("./durable_metadata.js");
const { default: Store } = require(
  path.join(path.dirname(process.argv[1]), "blob", "persistence", "LokiBlobMetadataStore.js")
);

/** The event of a request; undefined if it has none. `place` is the account, container and blob. */
function eventOf(context, api, place, properties) {
  const { account, container, blob } = place;
  const header = context.request.req?.headers["localazure-event"]; // a part of a batch has no `req`
  const ofRequest = header === undefined ? {} : JSON.parse(header);
  if (ofRequest === null) return undefined;
  const { contentLength, contentType, blobType, etag, source, recursive, accessTier, previousTier } =
    properties;
  return {
    api,
    account,
    container,
    blob,
    time: context.startTime,
    requestId: context.contextId,
    clientRequestId: context.request.getHeader("x-ms-client-request-id") ?? "",
    contentLength,
    contentType,
    blobType,
    etag,
    source,
    recursive,
    accessTier,
    previousTier,
    ...ofRequest,
  };
}

/** The event of a change of a document of a blob. */
function eventOfDocument(context, api, document, properties = document.properties) {
  const { accountName: account, containerName: container, name: blob } = document;
  return eventOf(context, api, { account, container, blob }, properties);
}

/**
 * The store for one request: the change of a blob is in one line of the journal with the event that
 * `describe` returns for the document to insert or update, or for the query of documents to remove.
 */
function withEvents(store, describe) {
  const blobs = store.db.getCollection(store.BLOBS_COLLECTION);
  const replaced = [];
  const change = (name) => ({
    value(argument) {
      const work = () => {
        for (const document of replaced) blobs.remove(document);
        return blobs[name](argument);
      };
      return atomically(store.db, work, describe(argument, blobs));
    },
  });
  const view = Object.create(blobs, {
    // Azurite inserts the new document at once, without a pause.
    remove: { value: (document) => void replaced.push(document) },
    insert: change("insert"),
    update: change("update"),
    findAndRemove: change("findAndRemove"),
  });
  const getCollection = (name) =>
    name === store.BLOBS_COLLECTION ? view : store.db.getCollection(name);
  const db = Object.create(store.db, { getCollection: { value: getCollection } });
  return Object.create(store, { db: { value: db } });
}

const APIS = {
  createBlob: "PutBlob",
  commitBlockList: "PutBlockList",
  copyFromURL: "CopyBlob",
  startCopyFromURL: "CopyBlob",
};

for (const [name, api] of Object.entries(APIS)) {
  const original = Store.prototype[name];
  Store.prototype[name] = function (context, ...parameters) {
    const describe = (document) => eventOfDocument(context, api, document);
    return original.call(withEvents(this, describe), context, ...parameters);
  };
}

const { deleteBlob, setTier } = Store.prototype;

Store.prototype.deleteBlob = function (context, ...parameters) {
  const describe = (query, blobs) => {
    const document = "snapshot" in query ? null : blobs.findOne({ ...query, snapshot: "" });
    return document?.isCommitted ? eventOfDocument(context, "DeleteBlob", document) : undefined;
  };
  return deleteBlob.call(withEvents(this, describe), context, ...parameters);
};

Store.prototype.setTier = function (context, accountName, containerName, name, ...parameters) {
  const blobs = this.db.getCollection(this.BLOBS_COLLECTION);
  const before = blobs.findOne({ accountName, containerName, name, snapshot: "" })?.properties;
  const previousTier = before?.accessTierInferred ? undefined : before?.accessTier;
  const describe = (document) => {
    // The rehydration of an archived blob begins; it has its event when it has ended.
    if ([document.properties.accessTier, "Archive"].includes(previousTier)) return undefined;
    const properties = { ...document.properties, previousTier };
    return eventOfDocument(context, "SetBlobTier", document, properties);
  };
  const store = withEvents(this, describe);
  return setTier.call(store, context, accountName, containerName, name, ...parameters);
};

module.exports = { eventOf };
