import { asArray, asObject, asString, at, type Json } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { Column } from "../resources/types.ts";
import { AGE, age, count, field, NAME, scalar, selectorText, text } from "./columns.ts";
import { podColumns } from "./pods.ts";

/** The columns of a built-in kind, after kubernetes pkg/printers/internalversion. */
export function columnsOf(group: string, kind: string): readonly Column[] {
  return TABLES[group === "" ? kind : `${kind}.${group}`] ?? [NAME, createdAt];
}

const createdAt: Column = {
  name: "Created At",
  type: "date",
  cell: (object) => object.metadata.creationTimestamp ?? null,
};

const containerNames = text("Containers", (object) => templateContainers(object, "name"), 1);
const containerImages = text("Images", (object) => templateContainers(object, "image"), 1);
const selector = text("Selector", (object) => selectorText(at(object, "spec", "selector")), 1);

function templateContainers(object: KubeObject, member: string): string {
  return asArray(at(object, "spec", "template", "spec", "containers"))
    .map((item) => scalar(asObject(item)[member]))
    .join(",");
}

function ratio(name: string, part: string, whole: string): Column {
  return text(
    name,
    (object) => `${Number(at(object, ...part.split(".")) ?? 0)}/${Number(at(object, ...whole.split(".")) ?? 0)}`,
  );
}

function keyCount(name: string, ...members: readonly string[]): Column {
  return {
    name,
    type: "string",
    cell: (object) => members.reduce((sum, member) => sum + Object.keys(asObject(object[member])).length, 0),
  };
}

function nodeStatus(object: KubeObject): string {
  const ready = asArray(at(object, "status", "conditions")).find((item) => asObject(item)["type"] === "Ready");
  const words = [ready === undefined ? "Unknown" : asObject(ready)["status"] === "True" ? "Ready" : "NotReady"];
  if (at(object, "spec", "unschedulable") === true) words.push("SchedulingDisabled");
  return words.join(",");
}

function nodeRoles(object: KubeObject): string {
  const prefix = "node-role.kubernetes.io/";
  const roles = Object.keys(object.metadata.labels ?? {})
    .filter((label) => label.startsWith(prefix))
    .map((label) => label.slice(prefix.length));
  return roles.length === 0 ? "<none>" : roles.sort().join(",");
}

function nodeAddress(type: string): (object: KubeObject) => string {
  return (object) => {
    const found = asArray(at(object, "status", "addresses")).find((item) => asObject(item)["type"] === type);
    return scalar(asObject(found)["address"]) || "<none>";
  };
}

function servicePorts(object: KubeObject): string {
  const ports = asArray(at(object, "spec", "ports")).map((item) => {
    const { port, nodePort, protocol } = asObject(item);
    return `${scalar(port)}${nodePort === undefined ? "" : `:${scalar(nodePort)}`}/${scalar(protocol)}`;
  });
  return ports.length === 0 ? "<none>" : ports.join(",");
}

function externalIps(object: KubeObject): string {
  const type = at(object, "spec", "type");
  const ips = asArray(at(object, "spec", "externalIPs")).map(scalar);
  if (type === "ExternalName") return scalar(at(object, "spec", "externalName"));
  if (type !== "LoadBalancer") return ips.length === 0 ? "<none>" : ips.join(",");
  const balancer = asArray(at(object, "status", "loadBalancer", "ingress")).map(
    (item) => scalar(asObject(item)["ip"]) || scalar(asObject(item)["hostname"]),
  );
  return [...balancer, ...ips].join(",") || "<pending>";
}

function endpointsText(object: KubeObject): string {
  const all = asArray(object["subsets"]).flatMap((subset) => {
    const ports = asArray(asObject(subset)["ports"]).map((port) => scalar(asObject(port)["port"]));
    const addresses = asArray(asObject(subset)["addresses"]).map((address) => scalar(asObject(address)["ip"]));
    return addresses.flatMap((address) => (ports.length === 0 ? [address] : ports.map((port) => `${address}:${port}`)));
  });
  if (all.length === 0) return "<none>";
  return all.length <= 3 ? all.join(",") : `${all.slice(0, 3).join(",")} + ${all.length - 3} more...`;
}

function firstFew(values: readonly string[], unset: string): string {
  if (values.length === 0) return unset;
  return values.length <= 3 ? values.join(",") : `${values.slice(0, 3).join(",")} + ${values.length - 3} more...`;
}

function eventTime(object: KubeObject, ...members: readonly string[]): Json | undefined {
  return (
    members.map((member) => object[member]).find((value) => typeof value === "string") ??
    object.metadata.creationTimestamp
  );
}

function eventObject(object: KubeObject): string {
  const involved = asObject(object["involvedObject"]);
  return `${asString(involved["kind"]).toLowerCase()}/${scalar(involved["name"])}`;
}

const eventColumns: readonly Column[] = [
  text("Last Seen", (object, now) =>
    age(at(object, "series", "lastObservedTime") ?? eventTime(object, "lastTimestamp", "eventTime"), now),
  ),
  field("Type", "type", ""),
  field("Reason", "reason", ""),
  text("Object", eventObject),
  field("Subobject", "involvedObject.fieldPath", "", 1),
  text(
    "Source",
    (object) =>
      [at(object, "source", "component") ?? object["reportingComponent"], at(object, "source", "host")]
        .map(scalar)
        .filter((part) => part !== "")
        .join(", "),
    1,
  ),
  field("Message", "message", ""),
  text("First Seen", (object, now) => age(eventTime(object, "firstTimestamp", "eventTime"), now), 1),
  text("Count", (object) => scalar(at(object, "series", "count") ?? object["count"]) || "1", 1),
  { ...NAME, priority: 1 },
];

const roleBindingColumns: readonly Column[] = [
  NAME,
  text("Role", (object) => `${scalar(at(object, "roleRef", "kind"))}/${scalar(at(object, "roleRef", "name"))}`),
  AGE,
];

const TABLES: Readonly<Record<string, readonly Column[]>> = {
  Pod: podColumns,
  Node: [
    NAME,
    text("Status", nodeStatus),
    text("Roles", nodeRoles),
    AGE,
    field("Version", "status.nodeInfo.kubeletVersion", ""),
    text("Internal-IP", nodeAddress("InternalIP"), 1),
    text("External-IP", nodeAddress("ExternalIP"), 1),
    field("OS-Image", "status.nodeInfo.osImage", "<unknown>", 1),
    field("Kernel-Version", "status.nodeInfo.kernelVersion", "<unknown>", 1),
    field("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", "<unknown>", 1),
  ],
  Namespace: [NAME, field("Status", "status.phase", ""), AGE],
  Service: [
    NAME,
    field("Type", "spec.type", ""),
    field("Cluster-IP", "spec.clusterIP"),
    text("External-IP", externalIps),
    text("Port(s)", servicePorts),
    AGE,
    selector,
  ],
  Endpoints: [NAME, text("Endpoints", endpointsText), AGE],
  ConfigMap: [NAME, keyCount("Data", "data", "binaryData"), AGE],
  Secret: [NAME, field("Type", "type", ""), keyCount("Data", "data"), AGE],
  ServiceAccount: [NAME, { name: "Secrets", type: "string", cell: (object) => asArray(object["secrets"]).length }, AGE],
  Event: eventColumns,
  "Event.events.k8s.io": eventColumns,
  "Deployment.apps": [
    NAME,
    ratio("Ready", "status.readyReplicas", "spec.replicas"),
    count("Up-to-date", "status.updatedReplicas"),
    count("Available", "status.availableReplicas"),
    AGE,
    containerNames,
    containerImages,
    selector,
  ],
  "ReplicaSet.apps": [
    NAME,
    count("Desired", "spec.replicas"),
    count("Current", "status.replicas"),
    count("Ready", "status.readyReplicas"),
    AGE,
    containerNames,
    containerImages,
    selector,
  ],
  "StatefulSet.apps": [
    NAME,
    ratio("Ready", "status.readyReplicas", "spec.replicas"),
    AGE,
    containerNames,
    containerImages,
  ],
  "DaemonSet.apps": [
    NAME,
    count("Desired", "status.desiredNumberScheduled"),
    count("Current", "status.currentNumberScheduled"),
    count("Ready", "status.numberReady"),
    count("Up-to-date", "status.updatedNumberScheduled"),
    count("Available", "status.numberAvailable"),
    text("Node Selector", (object) => selectorText(at(object, "spec", "template", "spec", "nodeSelector"))),
    AGE,
    containerNames,
    containerImages,
    selector,
  ],
  "Lease.coordination.k8s.io": [NAME, field("Holder", "spec.holderIdentity", ""), AGE],
  "EndpointSlice.discovery.k8s.io": [
    NAME,
    field("AddressType", "addressType", ""),
    text("Ports", (object) =>
      firstFew(
        asArray(object["ports"]).map((item) => scalar(asObject(item)["port"])),
        "<unset>",
      ),
    ),
    text("Endpoints", (object) =>
      firstFew(
        asArray(object["endpoints"]).flatMap((item) => asArray(asObject(item)["addresses"]).map(scalar)),
        "<unset>",
      ),
    ),
    AGE,
  ],
  "NetworkPolicy.networking.k8s.io": [
    NAME,
    text("Pod-Selector", (object) => selectorText(at(object, "spec", "podSelector"))),
    AGE,
  ],
  "PodDisruptionBudget.policy": [
    NAME,
    field("Min Available", "spec.minAvailable", "N/A"),
    field("Max Unavailable", "spec.maxUnavailable", "N/A"),
    count("Allowed Disruptions", "status.disruptionsAllowed"),
    AGE,
  ],
  "RoleBinding.rbac.authorization.k8s.io": roleBindingColumns,
  "ClusterRoleBinding.rbac.authorization.k8s.io": roleBindingColumns,
  "PriorityClass.scheduling.k8s.io": [
    NAME,
    count("Value", "value"),
    { name: "Global-Default", type: "boolean", cell: (object) => object["globalDefault"] === true },
    AGE,
  ],
  "MutatingWebhookConfiguration.admissionregistration.k8s.io": [
    NAME,
    text("Webhooks", (object) => asArray(object["webhooks"]).length),
    AGE,
  ],
  "ValidatingWebhookConfiguration.admissionregistration.k8s.io": [
    NAME,
    text("Webhooks", (object) => asArray(object["webhooks"]).length),
    AGE,
  ],
};
