/**
 * Access of pods to the proxy (docs/spec/uplink-proxy.md#9.1, #12).
 *
 * Owns: when there is a token and a certificate, where the cluster's secret is read, and a client of an API server that comes late. Refuses
 * to know: tunnels.
 *
 * ```ts
 * const pods = new PodAccess({ clock, log, clusterSecret }, { dir, settings });
 * group.spawn((signal) => pods.run({ signal }));
 * ```
 */
export { secretFromApi, secretFromFile } from "./cluster-secret.ts";
export { withLateClient } from "./late-client.ts";
export { PodAccess } from "./pod-access.ts";
