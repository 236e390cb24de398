import { IpAddress } from "#base/ip";
import type { Pod, StoredMeta } from "#kube/client";
import { egressNames, routerEgress } from "#kube/coil";
import { type AccessNamespace, type AccessPod, type EgressAccess, type EgressRef, egressUse } from "../access/index.ts";

type KeptMeta = Pick<StoredMeta, "name" | "namespace" | "uid" | "resourceVersion">;

/** A Pod as a router keeps it: of thousands of pods in a cluster most cannot be clients, and have nothing but their name here. */
export interface RouterClient {
  readonly metadata: KeptMeta;
  /** Absent: the pod cannot be a client, or has no address yet. */
  readonly candidate?: {
    readonly pod: AccessPod;
    /** Name of the node. */
    readonly node: string;
    readonly addresses: readonly IpAddress[];
  };
}

/**
 * Pure: the view of a Pod for the router of one Egress (docs/spec/pod-network.md#9). `withLabels`: the Egress chooses pods by their labels, so pods that do
 * not name it are kept too.
 */
export function routerClient(
  { metadata, spec, status }: Pod,
  egress: EgressRef,
  { withLabels }: { readonly withLabels: boolean },
): RouterClient {
  const { name, namespace, uid, resourceVersion, labels, annotations } = metadata;
  const kept = { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) };
  const isNamed = egressNames(annotations).get(egress.namespace)?.includes(egress.name) === true;
  const mayBeClient =
    (isNamed || withLabels) &&
    spec?.hostNetwork !== true &&
    routerEgress(labels) === undefined &&
    status?.phase !== "Succeeded" &&
    status?.phase !== "Failed";
  const addresses = mayBeClient ? (status?.podIPs ?? []).flatMap(({ ip }) => IpAddress.tryParse(ip ?? "") ?? []) : [];
  if (addresses.length === 0) return { metadata: kept };
  const named = new Map(isNamed ? [[egress.namespace, [egress.name]]] : []);
  const pod = { namespace: namespace ?? "", labels: withLabels ? labels : undefined, named };
  return { metadata: kept, candidate: { pod, node: spec?.nodeName ?? "", addresses } };
}

/** Pure: whether two views of a pod can make a difference to the router. */
export function sameCandidate(one: RouterClient, other: RouterClient): boolean {
  const text = ({ candidate }: RouterClient): string =>
    candidate === undefined
      ? ""
      : JSON.stringify([
          candidate.node,
          candidate.addresses.map(String),
          candidate.pod.labels ?? {},
          candidate.pod.named.size,
        ]);
  return text(one) === text(other);
}

/** The rules that decide whether a pod is a client. */
export interface AdmissionRules {
  /** The rules of the Egress; `undefined`: there is no such Egress, and it has no clients. */
  readonly access: EgressAccess | undefined;
  readonly namespace: (name: string) => AccessNamespace | undefined;
  /** Returns true if a pod of this node can have this address. */
  readonly isOfNode: (address: IpAddress, node: string) => boolean;
}

/** A pod that is a client, with the addresses of it that are admitted. */
export interface AdmittedClient {
  readonly metadata: KeptMeta;
  readonly addresses: readonly IpAddress[];
}

/** The clients of a router, and how many pods are none. */
export interface Admission {
  readonly clients: readonly AdmittedClient[];
  readonly refused: {
    /** Pods that name the Egress, or that it chooses, and that may not use it. */
    readonly access: number;
    /** Pods with an address that belongs to another node. */
    readonly address: number;
  };
}

/** Pure: the clients among the pods of the cluster. */
export function admitClients(pods: Iterable<RouterClient>, { access, namespace, isOfNode }: AdmissionRules): Admission {
  const clients: AdmittedClient[] = [];
  const refused = { access: 0, address: 0 };
  for (const { metadata, candidate } of access === undefined ? [] : pods) {
    if (candidate === undefined || access === undefined) continue;
    const use = egressUse(access, candidate.pod, namespace(candidate.pod.namespace));
    if (use.kind === "refused") refused.access += 1;
    if (use.kind !== "client") continue;
    const addresses = candidate.addresses.filter((address) => isOfNode(address, candidate.node));
    if (addresses.length < candidate.addresses.length) refused.address += 1;
    if (addresses.length > 0) clients.push({ metadata, addresses });
  }
  return { clients, refused };
}
