/**
 * A call of the CNI plugin `coil`, `vpc-neutron` or `vpc-alcor` from environment and configuration to output and exit code, but not the transport to coild or the agent of NICs
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
export { runPlugin, runVpcPlugin } from "./plugin.ts";
export { servedLately, servedPath } from "./served.ts";
export { DEFAULT_VPC_SOCKET, type RunDelegate, VPC_PLUGINS } from "./vpc.ts";
