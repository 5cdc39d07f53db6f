// Preloaded into Azurite (`node --require`): a function is optimised after many more calls.
//
// The V8 of Node.js 20 has only a fast compiler and an optimising one, and starts optimising early: its
// compiler threads take a quarter of the time of the first thousands of requests. Most storage parts
// never get more requests. From version 12 on, V8 has a compiler in between, and no such flag.
"use strict";

const [major] = process.versions.v8.split(".");
if (Number(major) < 12) {
  require("v8").setFlagsFromString("--interrupt-budget=600000"); // 67,584 otherwise, in bytes of code run
}
