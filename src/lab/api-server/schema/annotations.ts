import type { Schema } from "./schema.ts";

/**
 * Facts that are in the OpenAPI of the API and not in its types: how lists merge (Kubernetes `types.go` tags `patchStrategy`,
 * `patchMergeKey`, `listType`, `listMapKey`, `structType`). `merge KEY`: strategic-merge key and, for server-side apply,
 * map keys after `map`. `set`: a set of scalars. `atomic`: one unit. `retain`: `$retainKeys`.
 */
const CONTAINER_LISTS = {
  ports: "merge containerPort map containerPort protocol",
  env: "merge name map name",
  volumeMounts: "merge mountPath map mountPath",
  volumeDevices: "merge devicePath map devicePath",
  resizePolicy: "atomic",
} as const;

const conditions = { conditions: "merge type map type" } as const;

/** Definition short name, such as `core.v1.PodSpec`, to property to annotation. */
export const LIST_ANNOTATIONS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "meta.v1.ObjectMeta": { finalizers: "merge set", ownerReferences: "merge uid map uid" },
  "core.v1.PodSpec": {
    containers: "merge name map name",
    initContainers: "merge name map name",
    ephemeralContainers: "merge name map name",
    volumes: "merge,retain name map name",
    imagePullSecrets: "merge name map name",
    hostAliases: "merge ip map ip",
    topologySpreadConstraints: "merge topologyKey map topologyKey whenUnsatisfiable",
    resourceClaims: "merge,retain name map name",
    schedulingGates: "merge name map name",
    tolerations: "atomic",
    readinessGates: "atomic",
  },
  "core.v1.Container": CONTAINER_LISTS,
  "core.v1.EphemeralContainer": CONTAINER_LISTS,
  "core.v1.ResourceRequirements": { claims: "map name" },
  "core.v1.PodStatus": { ...conditions, podIPs: "merge ip map ip", hostIPs: "merge ip atomic" },
  "core.v1.ServiceSpec": {
    ports: "merge port map port protocol",
    clusterIPs: "atomic",
    ipFamilies: "atomic",
    externalIPs: "atomic",
    loadBalancerSourceRanges: "atomic",
  },
  "core.v1.ServiceStatus": conditions,
  "core.v1.NodeSpec": { podCIDRs: "merge set", taints: "atomic" },
  "core.v1.NodeStatus": { ...conditions, addresses: "merge type atomic" },
  "core.v1.NamespaceStatus": conditions,
  "core.v1.ServiceAccount": { secrets: "merge name map name", imagePullSecrets: "atomic" },
  "core.v1.PersistentVolumeClaimSpec": { accessModes: "atomic" },
  "apps.v1.DeploymentStatus": conditions,
  "apps.v1.ReplicaSetStatus": conditions,
  "apps.v1.StatefulSetStatus": conditions,
  "apps.v1.DaemonSetStatus": conditions,
  "policy.v1.PodDisruptionBudgetStatus": conditions,
  "discovery.v1.EndpointSlice": { endpoints: "atomic", ports: "atomic" },
  "discovery.v1.Endpoint": { addresses: "set" },
  "apiextensions.v1.CustomResourceDefinitionStatus": { conditions: "map type", storedVersions: "atomic" },
  "admissionregistration.v1.MutatingWebhookConfiguration": { webhooks: "merge name map name" },
  "admissionregistration.v1.ValidatingWebhookConfiguration": { webhooks: "merge name map name" },
};

/** Definitions that server-side apply treats as one value. */
export const ATOMIC_STRUCTS: readonly string[] = [
  "core.v1.ObjectReference",
  "core.v1.LocalObjectReference",
  "core.v1.TypedLocalObjectReference",
  "core.v1.ConfigMapKeySelector",
  "core.v1.SecretKeySelector",
  "core.v1.SecretReference",
  "core.v1.ObjectFieldSelector",
  "core.v1.ResourceFieldSelector",
  "core.v1.NodeSelector",
  "core.v1.NodeSelectorTerm",
  "core.v1.TopologySelectorTerm",
  "core.v1.EndpointAddress",
  "core.v1.EndpointPort",
  "meta.v1.LabelSelector",
  "meta.v1.OwnerReference",
  "discovery.v1.EndpointPort",
  "rbac.v1.RoleRef",
  "rbac.v1.Subject",
];

/** Maps that server-side apply treats as one value. */
export const ATOMIC_MAPS: Readonly<Record<string, readonly string[]>> = {
  "core.v1.PodSpec": ["nodeSelector"],
  "core.v1.ServiceSpec": ["selector"],
};

/** Structs merged by strategic merge with `$retainKeys`. */
export const RETAIN_KEYS: Readonly<Record<string, readonly string[]>> = {
  "apps.v1.DeploymentSpec": ["strategy"],
};

/** Properties that hold base64 bytes. */
export const BYTES: Readonly<Record<string, readonly string[]>> = {
  "core.v1.Secret": ["data"],
  "core.v1.ConfigMap": ["binaryData"],
};

/** Properties that the declarations leave out. */
export const MISSING: Readonly<Record<string, Readonly<Record<string, Schema>>>> = {
  "apiextensions.v1.JSONSchemaProps": {
    "x-kubernetes-embedded-resource": { type: "boolean" },
    "x-kubernetes-int-or-string": { type: "boolean" },
    "x-kubernetes-list-map-keys": { type: "array", items: { type: "string" }, "x-kubernetes-list-type": "atomic" },
    "x-kubernetes-list-type": { type: "string" },
    "x-kubernetes-map-type": { type: "string" },
    "x-kubernetes-preserve-unknown-fields": { type: "boolean" },
    "x-kubernetes-validations": {
      type: "array",
      items: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
    },
  },
};

/** Values that the server fills in (Kubernetes `defaults.go`), by definition and property. */
export const DEFAULTS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  "core.v1.PodSpec": {
    restartPolicy: "Always",
    dnsPolicy: "ClusterFirst",
    schedulerName: "default-scheduler",
    terminationGracePeriodSeconds: 30,
    enableServiceLinks: true,
    securityContext: {},
  },
  "core.v1.Container": {
    terminationMessagePath: "/dev/termination-log",
    terminationMessagePolicy: "File",
    resources: {},
  },
  "core.v1.ContainerPort": { protocol: "TCP" },
  "core.v1.ServicePort": { protocol: "TCP" },
  "core.v1.EndpointPort": { protocol: "TCP" },
  "core.v1.Probe": { timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3 },
  "core.v1.HTTPGetAction": { path: "/", scheme: "HTTP" },
  "core.v1.ConfigMapVolumeSource": { defaultMode: 420 },
  "core.v1.SecretVolumeSource": { defaultMode: 420 },
  "core.v1.DownwardAPIVolumeSource": { defaultMode: 420 },
  "core.v1.ProjectedVolumeSource": { defaultMode: 420 },
  "core.v1.HostPathVolumeSource": { type: "" },
  "core.v1.ObjectFieldSelector": { apiVersion: "v1" },
  "core.v1.ServiceSpec": { type: "ClusterIP", sessionAffinity: "None", internalTrafficPolicy: "Cluster" },
  "core.v1.NamespaceStatus": { phase: "Active" },
  "core.v1.Secret": { type: "Opaque" },
  "apps.v1.DeploymentSpec": { replicas: 1, revisionHistoryLimit: 10, progressDeadlineSeconds: 600, strategy: {} },
  "apps.v1.DeploymentStrategy": { type: "RollingUpdate" },
  "apps.v1.ReplicaSetSpec": { replicas: 1 },
  "apps.v1.StatefulSetSpec": {
    replicas: 1,
    revisionHistoryLimit: 10,
    podManagementPolicy: "OrderedReady",
    updateStrategy: { type: "RollingUpdate", rollingUpdate: { partition: 0 } },
  },
  "apps.v1.DaemonSetSpec": {
    revisionHistoryLimit: 10,
    updateStrategy: { type: "RollingUpdate", rollingUpdate: { maxUnavailable: 1, maxSurge: 0 } },
  },
  "scheduling.v1.PriorityClass": { preemptionPolicy: "PreemptLowerPriority" },
  "admissionregistration.v1.MutatingWebhook": {
    failurePolicy: "Fail",
    matchPolicy: "Equivalent",
    namespaceSelector: {},
    objectSelector: {},
    reinvocationPolicy: "Never",
    timeoutSeconds: 10,
  },
  "admissionregistration.v1.ValidatingWebhook": {
    failurePolicy: "Fail",
    matchPolicy: "Equivalent",
    namespaceSelector: {},
    objectSelector: {},
    timeoutSeconds: 10,
  },
};
