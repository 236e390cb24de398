/**
 * Configures the proxy in KubeVirt's Containerized Data Importer, so that imports of virtual machine images use the proxy
 * (docs/spec/uplink-proxy.md#12).
 *
 * Owns: the wanted part of the CDI object, and its reconciliation. Does not know: where credentials come from, and the listener.
 *
 * ```ts
 * const written = await syncCdi(api, { proxy: importProxy(POD_PROXY_URL) }, { log, signal });
 * ```
 */
export { CA_CONFIG_MAP, cdiPatch, importProxy, isCurrent, POD_PROXY_URL, withCredentials } from "./import-proxy.ts";
export { type CdiWanted, runCdiSync, syncCdi } from "./sync.ts";
