/**
 * The file of a UNIX stream socket that a server listens on.
 *
 * Owns: the check of the path, the mode of the socket's file, and listening again when the file is lost. Does not know: the server.
 *
 * ```ts
 * await claimSocketPath("/run/isthmus/proxy.sock", { deleteExisting: true });
 * const listening = await listenOnPath(server, "/run/isthmus/proxy.sock", { umask: 0o007 });
 * await using _kept = await keepSocket(() => serveGrpc(options), { path, health, log, clock, onBug });
 * ```
 */
export { claimSocketPath, isSocketServed } from "./claim.ts";
export { SocketPathError } from "./errors.ts";
export { fileIdentity } from "./identity.ts";
export { type KeptSocket, keepSocket } from "./keep.ts";
export { listenOnPath } from "./listen.ts";
