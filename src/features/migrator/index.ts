/**
 * The migration from Coil v1 to v2 (docs/spec/pod-network.md#14): v1's data in etcd become AddressPools and reserved AddressBlocks, and the
 * pods of v1 are replaced.
 *
 * Owns: the form of v1's data, reading them at one revision, the plan, and its steps on the API server. Does not know: flags, standard
 * input and output.
 *
 * ```ts
 * using etcd = new EtcdClient({ clock, log }, { endpoints, tls: {}, timeoutMs: 2000 });
 * const read = () => readSnapshot(etcd, "/coil/", { signal });
 * const { manifests } = await dump({ api, clock, log, read }, { prefix: "/coil/", uninstall: true, isExport: false, signal });
 * ```
 */
export { dump } from "./dump.ts";
export { MigratorError } from "./errors.ts";
export { EtcdClient, type EtcdOptions } from "./etcd-client.ts";
export { parseExport } from "./export-file.ts";
export { replace } from "./replace.ts";
export { remove as removeObject } from "./settle.ts";
export { readSnapshot } from "./snapshot.ts";
