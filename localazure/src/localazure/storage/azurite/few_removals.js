// Preloaded into Azurite (`node --require`): to delete a blob costs a search, not new indices.
//
// Azurite deletes what a query finds, and LokiJS then makes all indices of the collection anew: 1.5 s
// in an account of 200,000 blobs, for one of them, and all other requests wait meanwhile. Here few
// documents are removed one by one, which keeps the indices as they are.
"use strict";

// Azurite's own: the script to run is in its installation, this file is not.
const Loki = require(require.resolve("lokijs", { paths: [process.argv[1]] }));

const FEW = 20;

const { removeBatchByPositions } = Loki.Collection.prototype;
Loki.Collection.prototype.removeBatchByPositions = function (positions) {
  if (positions.length > FEW) return removeBatchByPositions.call(this, positions);
  const documents = positions.map((position) => this.data[position]);
  for (const document of documents) this.remove(document);
};

module.exports = { FEW };
