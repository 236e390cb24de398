/**
 * The uplink proxy: downloads leave through the cheapest uplink that works (spec uplink-proxy).
 *
 * Owns: per-uplink routing, the choice of an uplink for each connection, the tunnels, the environment that puts programs behind
 * them. Refuses to know: flags and files of a program's own.
 *
 * ```ts
 * const { HTTPS_PROXY, NO_PROXY } = proxyEnvironment({ nodeIP });
 * ```
 */

export * from "./cdi/index.ts";
export * from "./env/index.ts";
