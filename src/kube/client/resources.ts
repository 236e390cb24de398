import type * as AdmissionV1 from "kubernetes-types/admissionregistration/v1.js";
import type * as ApiExtensionsV1 from "kubernetes-types/apiextensions/v1.js";
import type * as AppsV1 from "kubernetes-types/apps/v1.js";
import type * as CoordinationV1 from "kubernetes-types/coordination/v1.js";
import type * as CoreV1 from "kubernetes-types/core/v1.js";
import type * as DiscoveryV1 from "kubernetes-types/discovery/v1.js";
import type * as EventsV1 from "kubernetes-types/events/v1.js";
import type * as NetworkingV1 from "kubernetes-types/networking/v1.js";
import type * as PolicyV1 from "kubernetes-types/policy/v1.js";
import type * as RbacV1 from "kubernetes-types/rbac/v1.js";
import { resourceType, type Stored } from "./resource.ts";

/** A Pod as read. */
export type Pod = Stored<CoreV1.Pod>;
/** A Node as read. */
export type Node = Stored<CoreV1.Node>;
/** A Namespace as read. */
export type Namespace = Stored<CoreV1.Namespace>;
/** A Service as read. */
export type Service = Stored<CoreV1.Service>;
/** A core/v1 Endpoints as read. */
export type Endpoints = Stored<CoreV1.Endpoints>;
/** A Secret as read; `data` is base64. */
export type Secret = Stored<CoreV1.Secret>;
/** A ConfigMap as read. */
export type ConfigMap = Stored<CoreV1.ConfigMap>;
/** A ServiceAccount as read. */
export type ServiceAccount = Stored<CoreV1.ServiceAccount>;
/** An events.k8s.io/v1 Event as read. */
export type Event = Stored<EventsV1.Event>;
/** A Deployment as read. */
export type Deployment = Stored<AppsV1.Deployment>;
/** A DaemonSet as read. */
export type DaemonSet = Stored<AppsV1.DaemonSet>;
/** A ReplicaSet as read. */
export type ReplicaSet = Stored<AppsV1.ReplicaSet>;
/** A Lease as read. */
export type Lease = Stored<CoordinationV1.Lease>;
/** An EndpointSlice as read. */
export type EndpointSlice = Stored<DiscoveryV1.EndpointSlice>;
/** A PodDisruptionBudget as read. */
export type PodDisruptionBudget = Stored<PolicyV1.PodDisruptionBudget>;
/** A Role as read. */
export type Role = Stored<RbacV1.Role>;
/** A RoleBinding as read. */
export type RoleBinding = Stored<RbacV1.RoleBinding>;
/** A ClusterRole as read. */
export type ClusterRole = Stored<RbacV1.ClusterRole>;
/** A ClusterRoleBinding as read. */
export type ClusterRoleBinding = Stored<RbacV1.ClusterRoleBinding>;
/** A CustomResourceDefinition as read. */
export type CustomResourceDefinition = Stored<ApiExtensionsV1.CustomResourceDefinition>;
/** A MutatingWebhookConfiguration as read. */
export type MutatingWebhookConfiguration = Stored<AdmissionV1.MutatingWebhookConfiguration>;
/** A ValidatingWebhookConfiguration as read. */
export type ValidatingWebhookConfiguration = Stored<AdmissionV1.ValidatingWebhookConfiguration>;

const core = { group: "", version: "v1" };
const apps = { group: "apps", version: "v1" };
const rbac = { group: "rbac.authorization.k8s.io", version: "v1" };
const admission = { group: "admissionregistration.k8s.io", version: "v1", namespaced: false };

/** The built-in resource types that the suite uses. */
export const resources = Object.freeze({
  pods: resourceType<Pod>({ ...core, kind: "Pod", plural: "pods", namespaced: true }),
  nodes: resourceType<Node>({ ...core, kind: "Node", plural: "nodes", namespaced: false }),
  namespaces: resourceType<Namespace>({ ...core, kind: "Namespace", plural: "namespaces", namespaced: false }),
  services: resourceType<Service>({ ...core, kind: "Service", plural: "services", namespaced: true }),
  endpoints: resourceType<Endpoints>({ ...core, kind: "Endpoints", plural: "endpoints", namespaced: true }),
  secrets: resourceType<Secret>({ ...core, kind: "Secret", plural: "secrets", namespaced: true }),
  configMaps: resourceType<ConfigMap>({ ...core, kind: "ConfigMap", plural: "configmaps", namespaced: true }),
  serviceAccounts: resourceType<ServiceAccount>({
    ...core,
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    namespaced: true,
  }),
  events: resourceType<Event>({
    group: "events.k8s.io",
    version: "v1",
    kind: "Event",
    plural: "events",
    namespaced: true,
  }),
  deployments: resourceType<Deployment>({ ...apps, kind: "Deployment", plural: "deployments", namespaced: true }),
  daemonSets: resourceType<DaemonSet>({ ...apps, kind: "DaemonSet", plural: "daemonsets", namespaced: true }),
  replicaSets: resourceType<ReplicaSet>({ ...apps, kind: "ReplicaSet", plural: "replicasets", namespaced: true }),
  leases: resourceType<Lease>({
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    plural: "leases",
    namespaced: true,
  }),
  endpointSlices: resourceType<EndpointSlice>({
    group: "discovery.k8s.io",
    version: "v1",
    kind: "EndpointSlice",
    plural: "endpointslices",
    namespaced: true,
  }),
  networkPolicies: resourceType<Stored<NetworkingV1.NetworkPolicy>>({
    group: "networking.k8s.io",
    version: "v1",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    namespaced: true,
  }),
  podDisruptionBudgets: resourceType<PodDisruptionBudget>({
    group: "policy",
    version: "v1",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    namespaced: true,
  }),
  roles: resourceType<Role>({ ...rbac, kind: "Role", plural: "roles", namespaced: true }),
  roleBindings: resourceType<RoleBinding>({ ...rbac, kind: "RoleBinding", plural: "rolebindings", namespaced: true }),
  clusterRoles: resourceType<ClusterRole>({ ...rbac, kind: "ClusterRole", plural: "clusterroles", namespaced: false }),
  clusterRoleBindings: resourceType<ClusterRoleBinding>({
    ...rbac,
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    namespaced: false,
  }),
  customResourceDefinitions: resourceType<CustomResourceDefinition>({
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    namespaced: false,
  }),
  mutatingWebhookConfigurations: resourceType<MutatingWebhookConfiguration>({
    ...admission,
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
  }),
  validatingWebhookConfigurations: resourceType<ValidatingWebhookConfiguration>({
    ...admission,
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
  }),
});
