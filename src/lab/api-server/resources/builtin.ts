import { apiVersionOf } from "../object/meta.ts";
import { REF_PREFIX } from "../schema/index.ts";
import { columnsOf } from "../table/builtin.ts";
import { fromCoreEvent, toCoreEvent } from "./events.ts";
import { STRATEGIES } from "./strategies.ts";
import { ALL_VERBS, type ResourceDef, type ScalePaths } from "./types.ts";

/**
 * The built-in resources that programs, tests or kubectl use, one a line: group/version, kind, plural, short names, categories, `ns` or `cluster`, and
 * `status` (has that subresource), `gen` (counts generations), `scale`, `create` (only that verb).
 */
const TABLE = `
v1 Binding bindings - - ns create
v1 ConfigMap configmaps cm - ns
v1 Endpoints endpoints ep - ns
v1 Event events ev - ns
v1 Namespace namespaces ns - cluster status
v1 Node nodes no - cluster status
v1 Pod pods po all ns status
v1 Secret secrets - - ns
v1 ServiceAccount serviceaccounts sa - ns
v1 Service services svc all ns status
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration mutatingwebhookconfigurations - api-extensions cluster gen
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy validatingadmissionpolicies - api-extensions cluster status gen
admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings - api-extensions cluster
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration validatingwebhookconfigurations - api-extensions cluster gen
apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions crd,crds api-extensions cluster status gen
apps/v1 DaemonSet daemonsets ds all ns status gen
apps/v1 Deployment deployments deploy all ns status gen scale
apps/v1 ReplicaSet replicasets rs all ns status gen scale
apps/v1 StatefulSet statefulsets sts all ns status gen scale
authentication.k8s.io/v1 TokenReview tokenreviews - - cluster create
authorization.k8s.io/v1 SelfSubjectAccessReview selfsubjectaccessreviews - - cluster create
authorization.k8s.io/v1 SelfSubjectRulesReview selfsubjectrulesreviews - - cluster create
authorization.k8s.io/v1 SubjectAccessReview subjectaccessreviews - - cluster create
coordination.k8s.io/v1 Lease leases - - ns
discovery.k8s.io/v1 EndpointSlice endpointslices - - ns gen
events.k8s.io/v1 Event events ev - ns
networking.k8s.io/v1 NetworkPolicy networkpolicies netpol - ns gen
networking.k8s.io/v1 ServiceCIDR servicecidrs - - cluster status gen
policy/v1 PodDisruptionBudget poddisruptionbudgets pdb - ns status gen
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings - - cluster
rbac.authorization.k8s.io/v1 ClusterRole clusterroles - - cluster
rbac.authorization.k8s.io/v1 RoleBinding rolebindings - - ns
rbac.authorization.k8s.io/v1 Role roles - - ns
scheduling.k8s.io/v1 PriorityClass priorityclasses pc - cluster gen
`;

const SELECTABLE: Readonly<Record<string, readonly string[]>> = {
  Pod: [
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
  ],
  Node: ["spec.unschedulable"],
  Namespace: ["status.phase"],
  Secret: ["type"],
  Service: ["spec.clusterIP", "spec.type"],
  ReplicaSet: ["status.replicas"],
  Event: [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "reason",
    "reportingComponent",
    "reportingController",
    "source",
    "type",
  ],
};

const SCALE: ScalePaths = {
  specReplicas: ["spec", "replicas"],
  statusReplicas: ["status", "replicas"],
  selector: ["spec", "selector"],
};

/** OpenAPI names of groups differ from their API names. */
function definitionName(group: string, version: string, kind: string): string {
  if (group === "apiextensions.k8s.io")
    return `io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.${version}.${kind}`;
  return `io.k8s.api.${group === "" ? "core" : (group.split(".")[0] ?? group)}.${version}.${kind}`;
}

/** Every built-in resource. */
export function builtinResources(): ResourceDef[] {
  return TABLE.trim().split("\n").map(parseRow);
}

function parseRow(row: string): ResourceDef {
  const [groupVersion = "", kind = "", plural = "", short = "-", categories = "-", scope, ...flags] = row.split(" ");
  const slash = groupVersion.indexOf("/");
  const group = slash < 0 ? "" : groupVersion.slice(0, slash);
  const version = groupVersion.slice(slash + 1);
  const definition = definitionName(group, version, kind);
  const event = group === "events.k8s.io";
  return {
    group,
    version,
    kind,
    listKind: `${kind}List`,
    plural,
    singular: kind.toLowerCase(),
    shortNames: short === "-" ? [] : short.split(","),
    categories: categories === "-" ? [] : categories.split(","),
    namespaced: scope === "ns",
    // The two kinds of events are two views of the same objects.
    storage: event ? "events" : group === "" ? plural : `${plural}.${group}`,
    definition,
    schema: { $ref: REF_PREFIX + definition },
    verbs: flags.includes("create") ? ["create"] : [...ALL_VERBS],
    hasStatus: flags.includes("status"),
    generation: flags.includes("gen"),
    scale: flags.includes("scale") ? SCALE : undefined,
    columns: columnsOf(group, kind),
    selectableFields: new Set(SELECTABLE[kind] ?? []),
    strategy: STRATEGIES[group === "" ? kind : `${kind}.${group}`] ?? {},
    custom: false,
    fromStorage: event ? fromCoreEvent : undefined,
    toStorage: event ? toCoreEvent : undefined,
    storageApiVersion: event ? "v1" : apiVersionOf(group, version),
  };
}
