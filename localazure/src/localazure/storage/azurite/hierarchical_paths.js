// Preloaded into Azurite (`node --require`): a file or a directory is renamed or deleted as one change.
//
// Azurite knows blobs only, and a directory is all blobs below a name. Here two of its operations act
// on a directory as a whole, if the storage part requests it:
//
// - Copy Blob with the header `x-ms-rename-source` moves instead of copying.
// - Delete Blob with the query parameter `recursive` also deletes all blobs below.
//
// Clients cannot request either: the proxy answers such requests itself (`dfs_requests.py`). Contents
// do not move: documents refer to them by the ids of extents. ETags do not change, as on Azure.
//
// All documents change between two requests and in one record of the journal, so that a listing and
// a crash find either the old state or the new one.
"use strict";

const path = require("path");
const { eventOf } = require("./blob_events.js");
const { atomically } = require("./durable_metadata.js");
const { FEW } = require("./few_removals.js");
const { orderOf } = require("./ordered_names.js");

/** A class of Azurite's Blob service. */
function azurite(...location) {
  return require(path.join(path.dirname(process.argv[1]), "blob", ...location)).default;
}

const BlobLeaseAdapter = azurite("lease", "BlobLeaseAdapter.js");
const BlobWriteLeaseValidator = azurite("lease", "BlobWriteLeaseValidator.js");
const StorageError = azurite("errors", "StorageError.js");
const StorageErrorFactory = azurite("errors", "StorageErrorFactory.js");
const Store = azurite("persistence", "LokiBlobMetadataStore.js");

// https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/create#responses
const REFUSALS = {
  SourcePathNotFound: [404, "The source path for a rename operation does not exist."],
  InvalidRenameSourcePath: [
    409,
    "The source directory cannot be the same as the destination directory, nor can the " +
      "destination be a subdirectory of the source directory.",
  ],
  RenameDestinationParentPathNotFound: [
    404,
    "The parent directory of the destination path does not exist.",
  ],
  PathAlreadyExists: [409, "The specified path already exists."],
  DirectoryNotEmpty: [
    409,
    "The recursive query parameter value must be true to delete a non-empty directory.",
  ],
};

function refusal(context, code) {
  const [status, message] = REFUSALS[code];
  return new StorageError(status, code, message, context.contextId);
}

/** A file or a directory: `account`, `container`, and `blob`, its name; the root's is empty. */
class HierarchicalPath {
  constructor(store, { account, container, blob }) {
    this.account = account;
    this.container = container;
    this.name = blob;
    this.blobs = store.db.getCollection(store.BLOBS_COLLECTION);
    this.blocks = store.db.getCollection(store.BLOCKS_COLLECTION);
  }

  contains(other) {
    const isNear = this.account === other.account && this.container === other.container;
    return isNear && `${other.name}/`.startsWith(`${this.name}/`);
  }

  below() {
    const prefix = this.name && `${this.name}/`;
    return orderOf(this.blobs, this.account, this.container).documents(prefix, prefix);
  }

  isEmpty() {
    for (const document of this.below()) if (document.isCommitted) return false;
    return true;
  }

  /** "file" or "directory"; undefined if the path does not exist. */
  kind() {
    if (!this.name) return "directory";
    const blob = this.ofItself().find((each) => each.isCommitted && !each.snapshot);
    if (blob) return blob.metadata?.hdi_isfolder === "true" ? "directory" : "file";
    return this.isEmpty() ? undefined : "directory";
  }

  /** The documents of the blob itself, without snapshots and uncommitted blobs. */
  ofItself() {
    const { account: accountName, container: containerName, name } = this;
    return this.blobs.find({ name, accountName, containerName });
  }

  /** All documents of blobs. */
  ofBlobs() {
    return [...this.ofItself(), ...this.below()];
  }

  /** All documents of blocks that are not committed. */
  ofBlocks() {
    return this.blocks.where(
      ({ accountName, containerName, blobName }) =>
        accountName === this.account &&
        containerName === this.container &&
        `${blobName}/`.startsWith(`${this.name}/`)
    );
  }

  remove() {
    this.blobs.remove(this.ofBlobs());
    this.blocks.remove(this.ofBlocks());
  }

  moveTo(destination) {
    const moved = (name) => destination.name + name.slice(this.name.length);
    const place = { accountName: destination.account, containerName: destination.container };
    replace(this.blobs, this.ofBlobs(), ({ name }) => ({ ...place, name: moved(name) }));
    replace(this.blocks, this.ofBlocks(), ({ blobName }) => ({
      ...place,
      blobName: moved(blobName),
    }));
  }
}

/** Replace documents by copies with the fields that `changed` returns. */
function replace(collection, documents, changed) {
  // `ordered_names.js` identifies documents by id: a document with a new name needs a new id.
  const others = documents.map((document) => {
    const { $loki, meta, ...fields } = document;
    return { ...fields, ...changed(document) };
  });
  collection.remove(documents);
  collection.insert(others, others.length > FEW); // with more documents, the indices are rebuilt once, at the end
}

/** Throws if the container does not exist, or if a lease forbids the change. */
async function validate(store, context, place) {
  const { account, container, blob } = place;
  const document = await store.getBlobWithLeaseUpdated(account, container, blob, "", context, false);
  if (document) {
    new BlobWriteLeaseValidator().validate(new BlobLeaseAdapter(document), context);
  }
}

const { startCopyFromURL, deleteBlob } = Store.prototype;

Store.prototype.startCopyFromURL = async function (context, from, to, ...rest) {
  if (!context.request.getHeader("x-ms-rename-source")) {
    return startCopyFromURL.call(this, context, from, to, ...rest);
  }
  await validate(this, context, from);
  await validate(this, context, to);
  const isKept = context.request.getHeader("if-none-match") === "*";
  const [source, destination] = [from, to].map((place) => new HierarchicalPath(this, place));
  const above = path.posix.dirname(`/${to.blob}`).slice(1);
  const parent = new HierarchicalPath(this, { ...to, blob: above });
  const kind = source.kind();
  const replaced = destination.kind();
  if (!kind) throw refusal(context, "SourcePathNotFound");
  if (source.contains(destination)) throw refusal(context, "InvalidRenameSourcePath");
  if (parent.kind() !== "directory") {
    throw refusal(context, "RenameDestinationParentPathNotFound");
  }
  if (replaced && (isKept || replaced !== kind || !destination.isEmpty())) {
    throw refusal(context, "PathAlreadyExists");
  }
  const change = () => {
    destination.remove();
    source.moveTo(destination);
  };
  const api = kind === "file" ? "RenameFile" : "RenameDirectory";
  atomically(this.db, change, eventOf(context, api, to, { source: from }));
  return destination.ofItself().find((each) => !each.snapshot)?.properties ?? {};
};

Store.prototype.deleteBlob = async function (context, account, container, blob, options) {
  const recursive = context.request.getQuery("recursive");
  if (recursive === undefined) {
    return deleteBlob.call(this, context, account, container, blob, options);
  }
  const place = { account, container, blob };
  await validate(this, context, place);
  const deleted = new HierarchicalPath(this, place);
  const kind = deleted.kind();
  if (!kind) throw StorageErrorFactory.getBlobNotFound(context.contextId);
  if (recursive !== "true" && !deleted.isEmpty()) throw refusal(context, "DirectoryNotEmpty");
  const file = deleted.ofItself().find((each) => !each.snapshot);
  const event =
    kind === "file"
      ? eventOf(context, "DeleteFile", place, file.properties)
      : eventOf(context, "DeleteDirectory", place, { recursive });
  atomically(this.db, () => deleted.remove(), event);
};
