/**
 * The parts of undici that the suite uses, by its inner modules: the whole of it (fetch, caches, mocks, WebSockets) takes each daemon 6 MiB
 * and 40 ms at its start, and each process of the tests 70 ms of the processor. The version is pinned by the lock file.
 */
const Agent = require("undici/lib/dispatcher/agent");
const Dispatcher = require("undici/lib/dispatcher/dispatcher");
const buildConnector = require("undici/lib/core/connect");
const errors = require("undici/lib/core/errors");

Object.assign(Dispatcher.prototype, require("undici/lib/api"));

// Node finds the names for an import in this form.
module.exports = { Agent, Dispatcher, buildConnector, errors };
