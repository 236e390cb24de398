import { type KubeObject, type ResourceType, resources, resourceType } from "#kube/client";
import { COIL_FINALIZER, coilCrds, coilResources } from "#kube/coil";
import { nicCrds, nicResources } from "#kube/nic";

type AnyType = ResourceType<KubeObject>;

/** An object of an installation. */
export interface InstalledObject {
  readonly type: AnyType;
  readonly namespace: string | undefined;
  readonly name: string;
  /** Its name is one that others use too: it is the suite's only with {@link PART_OF}. */
  readonly isMarked?: boolean;
}

/** The label and its value on the objects of `deploy/`. */
export const PART_OF = { label: "app.kubernetes.io/part-of", value: "isthmus" } as const;

/** Types whose objects are all of the suite. */
export interface OwnKind {
  readonly type: AnyType;
  /** The finalizer of the suite on its objects, which is taken off: the controllers have ended before. */
  readonly finalizer?: string;
}

const SYSTEM = "kube-system";
const admission = { group: "admissionregistration.k8s.io", version: "v1", namespaced: false } as const;
const policies = resourceType<KubeObject>({
  ...admission,
  kind: "ValidatingAdmissionPolicy",
  plural: "validatingadmissionpolicies",
});
const policyBindings = resourceType<KubeObject>({
  ...admission,
  kind: "ValidatingAdmissionPolicyBinding",
  plural: "validatingadmissionpolicybindings",
});

function objects(type: ResourceType<never> | AnyType, names: string, where = SYSTEM): readonly InstalledObject[] {
  const namespace = type.namespaced ? where : undefined;
  return names.split(" ").map((name) => ({ type: type as AnyType, namespace, name }));
}

/** Objects with names that Coil has not, and others may have. */
function marked(type: ResourceType<never> | AnyType, names: string): readonly InstalledObject[] {
  return objects(type, names).map((object) => ({ ...object, isMarked: true }));
}

/** Configurations of webhooks: they are removed first, because their server ends next, and writes would wait for it. */
export const WEBHOOKS: readonly InstalledObject[] = [
  ...objects(
    resources.mutatingWebhookConfigurations as AnyType,
    "coilv2-mutating-ipam-webhook-configuration coilv2-mutating-egress-webhook-configuration isthmus-mutating-nic-webhook-configuration",
  ),
  ...objects(
    resources.validatingWebhookConfigurations as AnyType,
    "coilv2-validating-ipam-webhook-configuration coilv2-validating-egress-webhook-configuration isthmus-validating-nic-webhook-configuration",
  ),
];

/** The name of the DaemonSet that removes the interfaces of pods. */
export const COILD = "coild";

/** The workloads of `deploy/`. Those of the tunnel come last: it may be the way by which the API server reaches nodes. */
export const WORKLOADS: readonly InstalledObject[] = [
  ...objects(
    resources.deployments as AnyType,
    "coil-ipam-controller coil-egress-controller coil-controller nic-controller",
  ),
  ...objects(resources.daemonSets as AnyType, `${COILD} coil-router nic-agent`),
  ...marked(resources.daemonSets as AnyType, "service-proxy uplink-proxy proxy-agent proxy-server"),
];

/** Roles and their bindings, of the same names; `coil-controller` is bound to another's role. */
const API_SERVERS =
  "coild-api-servers coil-router-api-servers coil-ipam-controller-api-servers coil-egress-controller-api-servers coil-controller-api-servers isthmus-service-proxy-api-servers nic-agent-api-servers nic-controller-api-servers";

/** Accounts, rights and settings of `deploy/`, and the Leases of leaders. */
export const RIGHTS: readonly InstalledObject[] = [
  ...objects(
    policyBindings,
    "coild-blocks coild-events isthmus-service-proxy-events nic-agent-claims nic-agent-events nic-controller-pods isthmus-egress-templates",
  ),
  ...objects(
    policies,
    "coild-blocks coild-events isthmus-service-proxy-events nic-agent-claims nic-agent-events nic-controller-pods isthmus-egress-templates",
  ),
  ...objects(
    resources.clusterRoleBindings as AnyType,
    "coild coil-router coil-ipam-controller coil-ipam-certs coil-egress-controller coil-egress coil-egress-certs coil-controller-ipam-controller coil-controller-egress-controller coil-controller-ipam-certs coil-controller-egress-certs isthmus-service-proxy nic-agent nic-controller nic-controller-certs isthmus-metrics-authorization",
  ),
  ...objects(
    resources.clusterRoles as AnyType,
    "coild coil-router coil-ipam-controller coil-ipam-certs coil-egress-controller coil-egress coil-egress-certs isthmus-service-proxy nic-agent nic-controller nic-controller-certs isthmus-metrics-authorization isthmus-metrics-reader coilv2-addresspool-viewer-role coilv2-addressblock-viewer-role coilv2-blockrequest-viewer-role coilv2-egress-viewer-role",
  ),
  ...objects(
    resources.roleBindings as AnyType,
    "coil-leader-election coil-ipam-leader coil-ipam-certs coil-egress-leader-election coil-egress-leader coil-egress-certs coil-controller-leader-election coil-controller-ipam-leader coil-controller-egress-leader coil-controller-ipam-certs coil-controller-egress-certs nic-controller-leader-election nic-controller-certs",
  ),
  ...objects(
    resources.roles as AnyType,
    "coil-leader-election coil-ipam-leader coil-ipam-certs coil-egress-leader coil-egress-certs nic-controller-leader-election nic-controller-certs",
  ),
  // Beside EndpointSlice kubernetes, which they are about.
  ...objects(resources.roleBindings as AnyType, API_SERVERS, "default"),
  ...objects(resources.roles as AnyType, API_SERVERS, "default"),
  ...objects(
    resources.serviceAccounts as AnyType,
    "coild coil-router coil-ipam-controller coil-egress-controller coil-controller isthmus-service-proxy nic-agent nic-controller",
  ),
  ...objects(
    resources.services as AnyType,
    "coilv2-ipam-webhook-service coilv2-egress-webhook-service nic-webhook-service",
  ),
  ...objects(
    resources.secrets as AnyType,
    "coilv2-ipam-webhook-server-cert coilv2-egress-webhook-server-cert nic-webhook-server-cert nic-controller-credentials",
  ),
  ...objects(resources.configMaps as AnyType, "coil-config nic-agent-network isthmus-service-proxy"),
  ...marked(resources.configMaps as AnyType, "uplink-proxy"),
  ...objects(resources.leases as AnyType, "coil-ipam-leader coil-egress-leader nic-controller-leader"),
];

/** Egresses: their routers are garbage when they are gone. */
export const EGRESSES: OwnKind = { type: coilResources.egresses as AnyType };

/** Types with addresses, and what they are about, in the order of their removal. */
export const ADDRESSES: readonly OwnKind[] = [
  { type: coilResources.blockRequests as AnyType },
  { type: coilResources.addressBlocks as AnyType, finalizer: COIL_FINALIZER },
  { type: coilResources.addressPools as AnyType, finalizer: COIL_FINALIZER },
  { type: nicResources.nicPolicies as AnyType },
];

/** NICs of pods: only `nic-controller` gives their ports back. */
export const NIC_CLAIMS: AnyType = nicResources.nicClaims as AnyType;

/** The API types. */
export const TYPES: readonly InstalledObject[] = objects(
  resources.customResourceDefinitions as AnyType,
  [...coilCrds, ...nicCrds].map(({ metadata }) => metadata.name).join(" "),
);
