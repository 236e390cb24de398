import { IpAddress } from "#base/ip";
import type { Pod, StoredMeta } from "#kube/client";
import { EGRESS_ANNOTATION_PREFIX, routerEgress } from "#kube/coil";
import type { AccessPod, PodUse } from "../access/index.ts";
import { accessPod, holderOf, namedEgresses } from "../client/index.ts";
import type { EgressNode, PodSpace, SpaceId } from "./state.ts";

/** A Pod as the audit needs it. */
export interface AuditedPod {
  readonly metadata: Pick<StoredMeta, "name" | "namespace" | "uid" | "creationTimestamp">;
  /** `namespace/name`. */
  readonly key: string;
  readonly node: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>> | undefined;
  readonly annotations: Readonly<Record<string, string>> | undefined;
  /** True if the annotations name an Egress, or if an Egress selects the pod and allows it. False for routers. */
  readonly isClient: boolean;
  /** The Egresses that exist and that it names, or that select it. */
  readonly uses: readonly PodUse[];
  /** The Egress whose router it is, by its labels: `namespace/name`. */
  readonly routerOf: string | undefined;
  /** False if the pod has no network of its own, or has ended. */
  readonly hasNetwork: boolean;
  readonly isRunning: boolean;
  readonly isLeaving: boolean;
  readonly addresses: readonly IpAddress[];
}

/** Pure: the view of a Pod. */
export function auditedPod({ metadata, spec, status }: Pod, usesOf: (pod: AccessPod) => readonly PodUse[]): AuditedPod {
  const { name, namespace = "", uid, creationTimestamp, annotations, labels } = metadata;
  const { phase, podIPs = [] } = status ?? {};
  const egress = routerEgress(labels);
  const uses = usesOf(accessPod({ namespace, labels, annotations }));
  const names =
    Object.keys(annotations ?? {}).some((key) => key.startsWith(EGRESS_ANNOTATION_PREFIX)) &&
    namedEgresses(annotations).length > 0;
  return {
    metadata: { name, namespace, uid, ...(creationTimestamp === undefined ? {} : { creationTimestamp }) },
    key: `${namespace}/${name}`,
    node: spec?.nodeName ?? "",
    namespace,
    labels,
    annotations,
    isClient: egress === undefined && (names || uses.some(({ use }) => use.kind === "client")),
    uses,
    routerOf: egress === undefined ? undefined : `${namespace}/${egress}`,
    hasNetwork: spec?.hostNetwork !== true && phase !== "Succeeded" && phase !== "Failed",
    isRunning: phase === "Running",
    isLeaving: metadata.deletionTimestamp !== undefined,
    addresses: podIPs.flatMap(({ ip }) => IpAddress.tryParse(ip ?? "") ?? []),
  };
}

/** A namespace of a node, with what it has of ours, if it has anything. */
export type FoundSpace = SpaceId & {
  readonly space: PodSpace | undefined;
  /** The reason why it could not be read. */
  readonly why?: string;
};

/** A node with its pods and their namespaces. */
export interface NodePods {
  readonly node: EgressNode;
  /** The namespaces, by the UID of the pod. */
  readonly spaces: ReadonlyMap<string, FoundSpace>;
  /** Namespaces that have something of ours, and no pod. */
  readonly strays: readonly PodSpace[];
}

/** Pure: which namespace is which pod's, as `coild` finds it after its start: by the UID, else by the address. */
export function matchPods(node: EgressNode, pods: readonly AuditedPod[]): NodePods {
  const own = pods.filter((pod) => pod.node === node.node);
  const living = own.filter(({ hasNetwork }) => hasNetwork);
  const byUid = new Map(own.map((pod) => [pod.metadata.uid, pod]));
  const at = (all: readonly AuditedPod[], addresses: readonly IpAddress[]): AuditedPod | undefined =>
    holderOf(all.filter((pod) => pod.addresses.some((one) => addresses.some((other) => other.equals(one)))));
  const podOf = ({ podUid, addresses }: SpaceId): AuditedPod | undefined =>
    podUid === undefined ? (at(living, addresses) ?? at(own, addresses)) : byUid.get(podUid);
  const spaces = new Map<string, FoundSpace>();
  const strays: PodSpace[] = [];
  const found: readonly FoundSpace[] = [
    ...node.spaces.map((space) => ({ ...space, space })),
    ...[...node.clean, ...node.failed].map((id) => ({ ...id, space: undefined })),
  ];
  for (const one of found) {
    const pod = podOf(one);
    if (pod !== undefined && !spaces.has(pod.metadata.uid)) spaces.set(pod.metadata.uid, one);
    else if (one.space !== undefined) strays.push(one.space);
  }
  return { node, spaces, strays };
}

/** The pod's address of each family: that which the node's routes show, else that of its status, as `coild` takes them. */
export function addressesOf(
  pod: AuditedPod,
  id: Pick<SpaceId, "addresses">,
): Readonly<Partial<Record<4 | 6, IpAddress>>> {
  const own = [...id.addresses, ...pod.addresses];
  const ofFamily = (family: 4 | 6): Partial<Record<4 | 6, IpAddress>> => {
    const address = own.find((one) => one.family === family);
    return address === undefined ? {} : { [family]: address };
  };
  return { ...ofFamily(4), ...ofFamily(6) };
}
