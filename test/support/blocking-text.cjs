/**
 * Loaded before a program by `node --require`: the first look at the text of ISTHMUS_TEST_BLOCKS blocks the process for ever, as an expression that takes hours would.
 * ISTHMUS_TEST_BLOCKS_COMMENT does so with the text of which an element of service-proxy's table gets its comment. A stand-in for a fault that nobody has found yet.
 */
const { writeSync } = require("node:fs");

const { slice, trim } = String.prototype;
const blocking = process.env["ISTHMUS_TEST_BLOCKS"];
const blockingComment = process.env["ISTHMUS_TEST_BLOCKS_COMMENT"];
/** The maximum length of a comment, characters. */
const COMMENT = 127;

function block() {
  writeSync(2, "blocked\n");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}

String.prototype.trim = function () {
  if (String(this) === blocking) block();
  return trim.call(this);
};
if (blockingComment !== undefined)
  String.prototype.slice = function (from, to) {
    if (to === COMMENT && String(this) === blockingComment) block();
    return slice.call(this, from, to);
  };
