/**
 * The mark of a daemon that serves CNI calls, by which STATUS of its executables tolerates its replacement (docs/spec/pod-network.md#12).
 *
 * Owns: the file beside the socket. Does not know: what the daemon needs to serve.
 *
 * ```ts
 * group.spawn((signal) => keepServedMark({ socket, canServe: () => isReady, health, clock }, { signal }));
 * ```
 */
export { markSocket } from "./mark-socket.ts";
export { keepServedMark } from "./served-mark.ts";
