/**
 * The part of the proxy that each thread has: everything between an accepted socket and a closed tunnel.
 *
 * Owns: composing front end, selection, DNS and relay; TLS and transparent clients. Does not know: listening, other threads, files.
 *
 * ```ts
 * const engine = new Engine(deps);
 * engine.accept(fd, remote, listener);
 * ```
 */
export { Engine } from "./engine.ts";
