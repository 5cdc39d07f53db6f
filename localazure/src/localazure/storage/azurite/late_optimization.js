// Preloaded into Azurite (`node --require`): a function is optimized after many more calls.
//
// The V8 of Node.js 20 knows no middle way between its fast compiler and its best one, and turns to the
// best one early: in the first thousands of requests, a fourth of the time is that of its threads. Most
// storage parts never see more requests. V8 has a middle way from 12 on, and no such flag.
"use strict";

const [major] = process.versions.v8.split(".");
if (Number(major) < 12) {
  require("v8").setFlagsFromString("--interrupt-budget=600000"); // 67,584 otherwise, in bytes of code run
}
