/**
 * The Container Network Interface (CNI), for callers of plugins and for plugins: environment, network configuration, results in
 * every version, errors. Pure and dependency-free.
 * Source: CNI specification 1.1.0 (and 0.3.1, 0.4.0, 1.0.0); docs/spec/pod-network.md#12.
 *
 * ```ts
 * const call = parseCniCall(process.env);
 * const config = parseNetworkConfig(stdin);
 * ```
 */
export { type CniCall, type CniNetworkCommand, isNetworkCommand, parseCniArgs, parseCniCall } from "./call.ts";
export { DEFAULT_SOCKET, type NetworkConfig, parseNetworkConfig, VALID_ATTACHMENTS } from "./config.ts";
export { CniCode, CniError, cniErrorJson } from "./errors.ts";
export { type CniResult, convertResult, parseResult } from "./result.ts";
export { compareVersions, HIGHEST_VERSION, SUPPORTED_VERSIONS, versionJson } from "./versions.ts";
