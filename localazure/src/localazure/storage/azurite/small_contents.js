// Preloaded into Azurite (`node --require`): contents are read and written without node's thread pool.
//
// Azurite opens, reads, writes, flushes and closes files in threads. For a small blob, waking a thread
// for each call costs more than all other work. The page cache reads or writes 64 KiB within
// microseconds, so the calls are synchronous here. Nothing is flushed to the disk, like the metadata
// (`durable_metadata.js`): contents survive the death of the process, not of the machine.
"use strict";

const fs = require("fs");
const path = require("path");

const AZURITE = path.dirname(process.argv[1]);
// Azurite's own modules: the script to run is in its installation, this file is not.
const { default: ExtentStore } = require(path.join(AZURITE, "common/persistence/FSExtentStore.js"));
const { default: BufferStream } = require(path.join(AZURITE, "common/utils/BufferStream.js"));
const { ZERO_EXTENT_ID } = require(path.join(AZURITE, "blob/persistence/IBlobMetadataStore.js"));

const SMALL_BYTES = 64 * 1024;

function writeAll(descriptor, data) {
  for (let written = 0; written < data.length; ) {
    written += fs.writeSync(descriptor, data, written);
  }
}

/** Append a stream to a file; resolves to the number of bytes at its end. */
ExtentStore.prototype.streamPipe = function (source, _unused, descriptor) {
  return new Promise((resolve, reject) => {
    let count = 0;
    let isOver = false; // `end` comes before `close`, and after an error the file is closed
    const finish = (settle, value) => {
      isOver = true;
      settle(value);
    };
    source
      .on("data", (data) => {
        if (isOver) return;
        try {
          writeAll(descriptor, data);
          count += data.length;
        } catch (error) {
          finish(reject, error);
        }
      })
      .on("end", () => finish(resolve, count))
      .on("close", () => finish(resolve, count))
      .on("error", (error) => finish(reject, error));
  });
};

const { readExtent } = ExtentStore.prototype;
ExtentStore.prototype.readExtent = async function (chunk, contextId) {
  if (!chunk || chunk.count === 0 || chunk.count > SMALL_BYTES || chunk.id === ZERO_EXTENT_ID) {
    return readExtent.call(this, chunk, contextId);
  }
  const location = await this.metadataStore.getExtentLocationId(chunk.id);
  const descriptor = fs.openSync(this.generateExtentPath(location, chunk.id));
  try {
    const data = Buffer.alloc(chunk.count);
    const size = fs.readSync(descriptor, data, 0, chunk.count, chunk.offset);
    return new BufferStream(data.subarray(0, size));
  } finally {
    fs.closeSync(descriptor);
  }
};
