/**
 * What the suite uses of undici, by its inner modules, in the built programs alone: the whole of it (fetch, caches, mocks, WebSockets)
 * takes each daemon 6 MiB and 40 ms at its start. The version is pinned by the lock file, and the tests of the built programs use this.
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
