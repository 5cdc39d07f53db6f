// Preloaded into Azurite (`node --require`): each template of an address is parsed once.
//
// To find a request's operation, Azurite parses the templates of all operations for every request.
"use strict";

// Azurite's own: the script to run is in its installation, this file is not.
const file = require.resolve("uri-templates", { paths: [process.argv[1]] });
const parse = require(file);
const parsed = new Map(); // text of a template -> what it matches

require.cache[file].exports = (template) => {
  if (!parsed.has(template)) parsed.set(template, parse(template));
  return parsed.get(template);
};
