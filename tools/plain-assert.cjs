/**
 * The part of node:assert that undici uses, only in the built programs: node:assert loads a printer of differences, which takes each daemon 10 ms at its start.
 */
module.exports = function assert(value, message) {
  if (!value) throw message instanceof Error ? message : new Error(message ?? "an assertion of undici has failed");
};
