/**
 * Local copies of API objects, kept up to date by list and watch.
 *
 * Owns: chunked lists, watches with bookmarks, back-off, relisting after 410, the store with its indexes, typed handlers with
 * old and new objects. Does not know: what the objects mean, queues, reconciling.
 *
 * ```ts
 * const pods = createInformer(client, resources.pods, {
 *   clock,
 *   fieldSelector: `spec.nodeName=${node}`,
 *   transform: ({ metadata, status }) => ({
 *     metadata: { name: metadata.name, namespace: metadata.namespace, uid: metadata.uid, resourceVersion: metadata.resourceVersion },
 *     ips: (status?.podIPs ?? []).map((ip) => ip.ip),
 *   }),
 *   indexers: { ip: (pod) => pod.ips.filter((ip) => ip !== undefined) },
 * });
 * pods.addHandler({ onDelete: (pod) => dirty.mark("pod deleted") });
 * group.spawn((signal) => pods.run({ signal }));
 * await allSynced([pods], { signal });
 * pods.store.byIndex("ip", "10.2.0.3");
 * ```
 */
export { allSynced } from "./all-synced.ts";
export type { InformerHandler } from "./handlers.ts";
export { createInformer, Informer } from "./informer.ts";
export type { InformerApi, InformerHealth, ObjectSteps } from "./informer-options.ts";
export type { Cached, StoreReader } from "./store.ts";
