import type { Deployment, Draft, PodDisruptionBudget, Service, ServiceAccount } from "#kube/client";
import { type EgressSpec, egressLabels, POOL_ANNOTATION, ROUTER_ACCOUNT, type SpecifiedEgress } from "#kube/coil";
import { addressPoolOf } from "./address-pool.ts";
import { type RouterSettings, routerPodOf } from "./router-pod.ts";

/** The objects of one Egress, beside its status and what its namespace shares. */
export interface EgressChildren {
  readonly deployment: Draft<Deployment>;
  readonly service: Draft<Service>;
  /** Absent if the Egress wants none. */
  readonly budget: Draft<PodDisruptionBudget> | undefined;
}

/** Pure: the objects that an Egress must have, with the fields that it decides (docs/spec/pod-network.md#8). */
export function childrenOf(egress: SpecifiedEgress, router: RouterSettings): EgressChildren {
  const { name, namespace = "" } = egress.metadata;
  const metadata = { name, namespace, labels: egressLabels(name), ownerReferences: [ownerOf(egress)] };
  const { podDisruptionBudget: budget } = egress.spec;
  const selector = { matchLabels: egressLabels(name) };
  return {
    deployment: { metadata, spec: deploymentOf(egress, router) } as Draft<Deployment>,
    service: {
      metadata: { ...metadata, annotations: SERVICE_ANNOTATIONS },
      spec: serviceOf(egress, router),
    } as Draft<Service>,
    budget:
      budget === undefined ? undefined : ({ metadata, spec: { selector, ...budget } } as Draft<PodDisruptionBudget>),
  };
}

/**
 * A router whose container starts again forwards on: flows stay with it for as long as clients take the answers of its kernel for those of its process (`service-proxy` knows the annotation,
 * docs/spec/service-proxy.md#2.11).
 */
const SERVICE_ANNOTATIONS = { "isthmus.dev/unready-udp-flow-seconds": "60" } as const;

/** A router's address is free for the next one only when it has ended. */
const ONE_BY_ONE = { type: "RollingUpdate", rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } } as const;

function deploymentOf(egress: SpecifiedEgress, router: RouterSettings) {
  const { spec } = egress;
  const labels = egressLabels(egress.metadata.name);
  const strategy = strategyOf(spec.strategy ?? (spec.addresses === undefined ? {} : ONE_BY_ONE));
  const { annotations: given } = spec.template?.metadata ?? {};
  // Routers get other addresses when they are made anew.
  const pool = addressPoolOf(egress)?.metadata.name;
  const annotations = pool === undefined ? given : { ...given, [POOL_ANNOTATION]: pool };
  return {
    replicas: spec.replicas ?? 1,
    selector: { matchLabels: labels },
    ...(Object.keys(strategy).length === 0 ? {} : { strategy }),
    template: {
      metadata: {
        labels: { ...spec.template?.metadata?.labels, ...labels },
        ...(annotations === undefined ? {} : { annotations }),
      },
      spec: routerPodOf(egress, router),
    },
  };
}

/** An empty type is none: then the server's default holds. */
function strategyOf({ type, ...rest }: NonNullable<EgressSpec["strategy"]>) {
  return type === undefined || type === "" ? rest : { type, ...rest };
}

function serviceOf({ metadata: { name }, spec }: SpecifiedEgress, { port }: RouterSettings) {
  const { sessionAffinity = "ClientIP", sessionAffinityConfig: config } = spec;
  return {
    type: "ClusterIP",
    selector: egressLabels(name),
    ports: [{ port, targetPort: port, protocol: "UDP" }],
    sessionAffinity,
    // The API server refuses a configuration of an affinity that is not wanted.
    ...(sessionAffinity === "None" || config === undefined ? {} : { sessionAffinityConfig: config }),
    ipFamilyPolicy: "PreferDualStack",
  };
}

/** Pure: the account of the routers of a namespace. */
export function accountOf(namespace: string): Draft<ServiceAccount> {
  return { metadata: { name: ROUTER_ACCOUNT, namespace } };
}

/** Pure: the subjects of the ClusterRoleBinding: the routers' account in each namespace that has an Egress, sorted. */
export function subjectsOf(namespaces: Iterable<string>) {
  return [...new Set(namespaces)]
    .sort()
    .map((namespace) => ({ kind: "ServiceAccount", name: ROUTER_ACCOUNT, namespace }));
}

function ownerOf({ metadata: { name, uid } }: SpecifiedEgress) {
  return { apiVersion: "coil.cybozu.com/v2", kind: "Egress", name, uid, controller: true, blockOwnerDeletion: true };
}
