/**
 * Loaded before a program by `node --require`: the first look at the text of ISTHMUS_TEST_BLOCKS blocks the process for ever, as an expression that takes hours would.
 * A stand-in for a fault that nobody has found yet.
 */
const { writeSync } = require("node:fs");

const { trim } = String.prototype;
const blocking = process.env["ISTHMUS_TEST_BLOCKS"];
String.prototype.trim = function () {
  if (String(this) === blocking) {
    writeSync(2, "blocked\n");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }
  return trim.call(this);
};
