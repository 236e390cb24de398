/**
 * The server in the pods of a lab's Services. An answer names the server's and the client's address, and lasts as long as the client
 * requests. When the server ends, it first completes its answers.
 *
 * Owns: an HTTP server and the client's view of its answers. Does not know: Services and proxies.
 */
export { type BackendAnswer, BackendError, parseBackendAnswer, SLOW_PATH, WHO_PATH } from "./answer.ts";
export { serveBackend } from "./serve.ts";
