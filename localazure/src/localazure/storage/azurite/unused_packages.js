// Preloaded into Azurite (`node --require`): stubs for packages that it loads and never calls.
//
// applicationinsights is for telemetry, which --disableTelemetry turns off, and sequelize for metadata
// in an SQL server. Loading them takes two thirds of Azurite's start-up time. `require` returns these
// stubs instead: https://nodejs.org/api/modules.html#requirecache.
"use strict";

const UNUSED = {
  applicationinsights: {},
  sequelize: { Model: class {} }, // unused classes extend it
};

for (const [name, exports] of Object.entries(UNUSED)) {
  const file = require.resolve(name, { paths: [process.argv[1]] });
  require.cache[file] = { id: file, filename: file, loaded: true, exports };
}
