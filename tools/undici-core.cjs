/**
 * The parts of undici that the suite uses, by its inner modules, only in the built programs: the whole of it (fetch, caches, mocks,
 * WebSockets) takes each daemon 6 MiB and 40 ms at its start. The version is pinned by the lock file, and the tests of the built programs
 * use this.
 */
const Agent = require("../node_modules/undici/lib/dispatcher/agent");
const Dispatcher = require("../node_modules/undici/lib/dispatcher/dispatcher");

Object.assign(Dispatcher.prototype, require("../node_modules/undici/lib/api"));

module.exports = {
  Agent,
  Dispatcher,
  buildConnector: require("../node_modules/undici/lib/core/connect"),
  errors: require("../node_modules/undici/lib/core/errors"),
};
