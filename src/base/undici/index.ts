/**
 * The client of HTTP/1.1 and HTTP/2 that clients of outside APIs are made on: the parts of undici that they use.
 *
 * Owns: the choice of the parts. Does not know: any API. `tools/whole-undici.mjs` puts the whole package in their place; `.ci/run` tests the clients on it, too.
 */
export { Agent, buildConnector, Dispatcher, errors } from "./undici-core.cjs";
