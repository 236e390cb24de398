/**
 * What answers in the pods of a lab's Services: says who it is and whom it sees, takes its time when asked to, and ends as a
 * well-behaved server does, after those that it has begun to answer.
 *
 * Owns: an HTTP server and the client's view of its answers. Refuses to know: Services and proxies.
 */
export { type BackendAnswer, BackendError, parseBackendAnswer, SLOW_PATH, WHO_PATH } from "./answer.ts";
export { serveBackend } from "./serve.ts";
