import { IpAddress } from "#base/ip";
import type { Pod, StoredMeta } from "#kube/client";
import { EGRESS_ANNOTATION_PREFIX, routerEgress } from "#kube/coil";
import { staticUid } from "#kube/static-pods";
import { namedEgresses } from "../client/index.ts";

/** A Pod of this node as its NAT client needs it. */
export interface ClientPod {
  readonly metadata: Pick<StoredMeta, "name" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp">;
  /** The UID that the runtime tells of a static pod; this Pod is its mirror. */
  readonly staticUid?: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Those that name Egresses; none of a router. */
  readonly annotations: Readonly<Record<string, string>>;
  /** True if it is a router and names Egresses all the same. */
  readonly isRefused: boolean;
  /** False if the pod has no network of its own, or has ended. */
  readonly hasNetwork: boolean;
  readonly isRunning: boolean;
  readonly isLeaving: boolean;
  readonly addresses: readonly IpAddress[];
}

/** Pure: the view of a Pod. */
export function clientPod({ metadata, spec, status }: Pod): ClientPod {
  const { name, namespace, uid, resourceVersion, creationTimestamp, labels = {}, annotations = {} } = metadata;
  const { phase, podIPs = [] } = status ?? {};
  const naming = Object.entries(annotations).filter(([key]) => key.startsWith(EGRESS_ANNOTATION_PREFIX));
  const isRouter = routerEgress(labels) !== undefined;
  const runtimeUid = staticUid(annotations);
  return {
    metadata: {
      name,
      uid,
      resourceVersion,
      ...(namespace === undefined ? {} : { namespace }),
      ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
    },
    ...(runtimeUid === undefined ? {} : { staticUid: runtimeUid }),
    namespace: namespace ?? "",
    labels,
    annotations: isRouter ? {} : Object.fromEntries(naming),
    isRefused: isRouter && naming.length > 0,
    hasNetwork: spec?.hostNetwork !== true && phase !== "Succeeded" && phase !== "Failed",
    isRunning: phase === "Running",
    isLeaving: metadata.deletionTimestamp !== undefined,
    addresses: podIPs.flatMap(({ ip }) => IpAddress.tryParse(ip ?? "") ?? []),
  };
}

/** The indexes of a store of {@link ClientPod}. */
export const CLIENT_POD_INDEXES = {
  uid: ({ metadata }: ClientPod) => [metadata.uid],
  egress: (pod: ClientPod) => namedEgresses(pod.annotations).map(({ namespace, name }) => `${namespace}/${name}`),
  namespace: ({ namespace }: ClientPod) => [namespace],
  address: (pod: ClientPod) => (pod.hasNetwork ? pod.addresses.map(String) : []),
};

/** Returns true if the pod names an Egress, and is no router. */
export function namesEgress({ annotations }: ClientPod): boolean {
  return Object.keys(annotations).length > 0;
}

/** Returns true if two states of a pod want different clients. */
export function differs(before: ClientPod, after: ClientPod): boolean {
  const text = ({ annotations, labels, addresses, metadata, ...flags }: ClientPod): string =>
    JSON.stringify([annotations, Object.entries(labels).sort(), addresses.map(String), metadata.uid, flags]);
  return text(before) !== text(after);
}
