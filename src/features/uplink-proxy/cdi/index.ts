/**
 * Configures the proxy in KubeVirt's Containerized Data Importer, so that imports of virtual machine images use the proxy
 * (docs/spec/uplink-proxy.md#12).
 *
 * Owns: the wanted part of the CDI object, and its reconciliation. Does not know: where credentials come from. Nothing imports it but a program,
 * so it can be removed whole.
 *
 * ```ts
 * await runCdiSync({ clock, api, log, settings: () => settings, access: pods }, { signal });
 * ```
 */
export { cdiPatch, importProxy, isCurrent, POD_PROXY_URL, withCredentials } from "./import-proxy.ts";
export { runCdiSync, syncCdi } from "./sync.ts";
export { type CdiWanted, cdiWanted } from "./wanted.ts";
