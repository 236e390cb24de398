import type { NamespaceView, NicCluster, NodeView, PodView } from "#features/nic-controller";
import { type KubeObject, type Namespace, type Node, type Pod, resources, type StoredMeta } from "#kube/client";
import type { Informer } from "#kube/informer";
import {
  DEFAULT_VPC_ANNOTATION,
  LEGACY_NICS_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  NIC_POLICY_NAME,
  NICS_ANNOTATION,
  NICS_GATE,
  NICS_READY,
  type NicClaim,
  type NicPolicy,
  nicResources,
  PROVIDER_HOST_ANNOTATION,
  VM_ANNOTATION,
  VPC_ANNOTATION,
} from "#kube/nic";
import type { ControllerReplica } from "../controller/index.ts";

/** The annotations that say what a pod asks for. */
const WISHES = [VPC_ANNOTATION, NICS_ANNOTATION, LEGACY_VPC_ANNOTATION, LEGACY_NICS_ANNOTATION, VM_ANNOTATION];

type Kept<View> = View & { readonly metadata: StoredMeta };
/** A Pod as it is kept. */
export type KeptPod = Kept<PodView>;
type KeptNamespace = Kept<{ readonly view: NamespaceView }>;
/** A Node as it is kept. */
export type KeptNode = Kept<{ readonly view: NodeView }>;

/** The informers of a replica, and the cluster as they show it. */
export interface NicInformers {
  readonly pods: Informer<Pod, KeptPod>;
  readonly claims: Informer<NicClaim, NicClaim>;
  readonly policies: Informer<NicPolicy, NicPolicy>;
  readonly namespaces: Informer<Namespace, KeptNamespace>;
  readonly nodes: Informer<Node, KeptNode>;
  readonly cluster: NicCluster;
}

/** Makes the informers, which every replica has: those that wait serve webhooks, and take over with warm caches. */
export function nicInformers({ watch }: Pick<ControllerReplica, "watch">): NicInformers {
  const pods = watch(resources.pods, {
    transform: keptPod,
    indexers: {
      uid: (pod) => [pod.metadata.uid],
      node: (pod) => (pod.spec.nodeName === undefined || !asksForNics(pod) ? [] : [pod.spec.nodeName]),
    },
  });
  const claims = watch(nicResources.nicClaims);
  const policies = watch(nicResources.nicPolicies);
  const namespaces = watch(resources.namespaces, { transform: keptNamespace });
  const nodes = watch(resources.nodes, { transform: keptNode });
  const cluster: NicCluster = {
    claim: (namespace, uid) => claims.store.get(uid, namespace),
    claims: () => claims.store.values(),
    pod: (uid) => pods.store.byIndex("uid", uid)[0],
    namespace: (name) => namespaces.store.get(name)?.view,
    node: (name) => nodes.store.get(name)?.view,
    policy: () => policies.store.get(NIC_POLICY_NAME)?.spec ?? {},
  };
  return { pods, claims, policies, namespaces, nodes, cluster };
}

/** Returns true if a pod says anything about NICs, or waits for some. */
export function asksForNics({ metadata: { annotations = {} }, spec }: KeptPod): boolean {
  return spec.isGated === true || WISHES.some((key) => Object.hasOwn(annotations, key));
}

/** A pod that asks for no NICs is a few words; one that does keeps the annotations that are compared. */
function keptPod({ metadata, spec, status }: Pod): KeptPod {
  const { annotations = {}, deletionTimestamp } = metadata;
  const asks = WISHES.some((key) => Object.hasOwn(annotations, key));
  const condition = status?.conditions?.find(({ type }) => type === NICS_READY);
  return {
    metadata: {
      ...identityOf(metadata),
      ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }),
      ...(asks ? { annotations } : {}),
    },
    spec: {
      nodeName: spec?.nodeName,
      hostNetwork: spec?.hostNetwork,
      ...(spec?.schedulingGates?.some(({ name }) => name === NICS_GATE) === true ? { isGated: true } : {}),
    },
    status: {
      phase: status?.phase,
      ...(condition === undefined
        ? {}
        : { conditions: [condition as NonNullable<PodView["status"]["conditions"]>[number]] }),
    },
  };
}

function keptNamespace({ metadata }: Namespace): KeptNamespace {
  return { metadata: identityOf(metadata), view: namespaceView({ metadata }) };
}

/** Returns the part of a Namespace that rules read. */
export function namespaceView({ metadata: { labels, annotations = {} } }: Pick<Namespace, "metadata">): NamespaceView {
  const defaultVpc = annotations[DEFAULT_VPC_ANNOTATION];
  return { labels, annotations: defaultVpc === undefined ? {} : { [DEFAULT_VPC_ANNOTATION]: defaultVpc } };
}

function keptNode({ metadata, status }: Node): KeptNode {
  const { annotations = {} } = metadata;
  const host = annotations[PROVIDER_HOST_ANNOTATION];
  const ready = status?.conditions?.find(({ type }) => type === "Ready");
  const since = Date.parse(ready?.lastTransitionTime ?? "");
  return {
    metadata: identityOf(metadata),
    view: {
      annotations: host === undefined ? {} : { [PROVIDER_HOST_ANNOTATION]: host },
      // A node without the condition is one that has not reported yet.
      notReadySince: ready === undefined || ready.status === "True" || Number.isNaN(since) ? undefined : since,
    },
  };
}

function identityOf({ name, namespace, uid, resourceVersion }: KubeObject["metadata"]): StoredMeta {
  return { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) };
}
