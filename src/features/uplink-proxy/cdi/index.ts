/**
 * Virtual machine images come through the proxy too: KubeVirt's Containerized Data Importer is told of it (docs/spec/uplink-proxy.md#12).
 *
 * Owns: what the CDI object shall say, and its reconciliation. Refuses to know: where credentials come from, and the listener.
 *
 * ```ts
 * const written = await syncCdi(api, { proxy: importProxy(POD_PROXY_URL) }, { log, signal });
 * ```
 */
export {
  CA_CONFIG_MAP,
  cdiPatch,
  type ImportProxy,
  importProxy,
  isCurrent,
  POD_PROXY_URL,
  withCredentials,
} from "./import-proxy.ts";
export { type CdiWanted, cdiResource, runCdiSync, syncCdi } from "./sync.ts";
