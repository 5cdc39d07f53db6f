// Preloaded into Azurite (`node --require`): deleting a blob does not rebuild the indices.
//
// Azurite deletes the results of a query, and LokiJS then rebuilds all indices of the collection. In an
// account of 200,000 blobs, the deletion of one blob takes 1.5 s and blocks all other requests. Here a
// few documents are removed one by one, which does not rebuild the indices.
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
