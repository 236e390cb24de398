/**
 * A call of the CNI plugin `coil` from environment and configuration to output and exit code, but not the transport to coild
 * (docs/spec/pod-network.md#11). The standalone executable passes gRPC as the transport; a coild that has got the call from a launcher
 * passes its own handlers (docs/design/cni-executable.md).
 *
 * Owns: the protocol of CNI. Does not know: processes, sockets, how coild answers.
 *
 * ```ts
 * const { exitCode, to, text } = await runPlugin(process.env, stdin, callByGrpc);
 * ```
 */
export { type CallCoild, errorOf } from "./call-coild.ts";
export { runPlugin } from "./plugin.ts";
