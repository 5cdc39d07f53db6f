// Preloaded into Azurite (`node --require`): packages that it loads and never calls as it runs here.
//
// applicationinsights is for telemetry, which --disableTelemetry turns off, and sequelize for metadata
// in an SQL server. To load them takes two thirds of Azurite's start. `require` finds these in their
// place: https://nodejs.org/api/modules.html#requirecache.
"use strict";

const UNUSED = {
  applicationinsights: {},
  sequelize: { Model: class {} }, // classes that are never made extend it
};

for (const [name, exports] of Object.entries(UNUSED)) {
  const file = require.resolve(name, { paths: [process.argv[1]] });
  require.cache[file] = { id: file, filename: file, loaded: true, exports };
}
