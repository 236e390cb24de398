import { IpAddress } from "#base/ip";
import type { Pod, StoredMeta } from "#kube/client";
import { egressNames, routerEgress } from "#kube/coil";

/** A Pod as a router keeps it: of thousands of pods in a cluster most are no clients, and have no addresses here. */
interface RouterClient {
  readonly metadata: Pick<StoredMeta, "name" | "namespace" | "uid" | "resourceVersion">;
  /** Empty if the pod is not a client, or has no address yet. */
  readonly addresses: readonly IpAddress[];
}

/** Pure: the view of a Pod for the router of one Egress (docs/spec/pod-network.md#9). */
export function clientOf(pod: Pod, egress: { readonly namespace: string; readonly name: string }): RouterClient {
  const { name, namespace, uid, resourceVersion, labels, annotations } = pod.metadata;
  const metadata = { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) };
  const isClient =
    pod.spec?.hostNetwork !== true &&
    routerEgress(labels) === undefined &&
    pod.status?.phase !== "Succeeded" &&
    pod.status?.phase !== "Failed" &&
    egressNames(annotations).get(egress.namespace)?.includes(egress.name) === true;
  if (!isClient) return { metadata, addresses: [] };
  const addresses = (pod.status?.podIPs ?? []).flatMap(({ ip }) => IpAddress.tryParse(ip ?? "") ?? []);
  return { metadata, addresses };
}
