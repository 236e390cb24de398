import type { Cause } from "../errors.ts";
import { asArray, asObject, asString, at, equal, isObject, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import { invalidValue, requiredValue } from "../schema/index.ts";
import { prepareCrd } from "./crd-defaults.ts";
import { validateCrd } from "./crd-validate.ts";
import type { Strategy } from "./types.ts";

/** A fault if `path` has changed. */
function immutable(path: readonly string[], object: KubeObject, old: KubeObject | undefined): Cause[] {
  if (old === undefined || equal(at(object, ...path), at(old, ...path))) return [];
  return [invalidValue(path.join("."), at(object, ...path), "field is immutable")];
}

function spec(object: KubeObject): JsonObject {
  const value = object["spec"];
  if (isObject(value)) return value;
  const made: JsonObject = {};
  object["spec"] = made;
  return made;
}

const pod: Strategy = {
  defaults(object) {
    for (const list of ["initContainers", "containers"]) {
      for (const container of asArray(spec(object)[list])) {
        if (!isObject(container) || container["imagePullPolicy"] !== undefined) continue;
        const image = asString(container["image"]);
        const tag = image.includes("@") ? "digest" : (/:([^/:]+)$/.exec(image)?.[1] ?? "latest");
        container["imagePullPolicy"] = tag === "latest" ? "Always" : "IfNotPresent";
      }
    }
    if (spec(object)["serviceAccountName"] !== undefined)
      spec(object)["serviceAccount"] = spec(object)["serviceAccountName"];
  },
  prepareCreate(object) {
    object["status"] = { phase: "Pending", qosClass: qosClass(object) };
  },
  admitted(object) {
    if (asArray(at(object, "spec", "schedulingGates")).length === 0) return object;
    return { ...object, status: { ...asObject(object["status"]), conditions: [{ ...GATED }] } };
  },
  validate(object, old) {
    const causes = [...containerCauses(spec(object), "spec"), ...gateCauses(object, old)];
    if (old === undefined) return causes;
    const before = podFixed(old);
    const now = podFixed(object);
    if (equal(before, now)) return causes;
    const why =
      "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds`";
    return [...causes, { reason: "FieldValueForbidden", message: `Forbidden: ${why}`, field: "spec" }];
  },
  graceSeconds(object, wanted) {
    const phase = at(object, "status", "phase");
    if (asString(at(object, "spec", "nodeName")) === "" || phase === "Succeeded" || phase === "Failed") return 0;
    const own = at(object, "spec", "terminationGracePeriodSeconds");
    return wanted ?? (typeof own === "number" ? own : 30);
  },
};

/** The status of a pod that waits for its scheduling gates. */
const GATED = {
  type: "PodScheduled",
  status: "False",
  reason: "SchedulingGated",
  message: "Scheduling is blocked due to non-empty scheduling gates",
} as const;

/** Gates are there from the start and are only removed; a pod that has a node has none. */
function gateCauses(object: KubeObject, old: KubeObject | undefined): Cause[] {
  const gatesOf = (pod: KubeObject): string[] =>
    asArray(at(pod, "spec", "schedulingGates")).map((gate) => asString(asObject(gate)["name"]));
  const gates = gatesOf(object);
  if (old !== undefined) {
    const before = new Set(gatesOf(old));
    const news = gates.filter((gate) => !before.has(gate));
    if (news.length === 0) return [];
    const why = `only deletion is allowed, but found new scheduling gate '${news[0]}'`;
    return [{ reason: "FieldValueForbidden", message: `Forbidden: ${why}`, field: "spec.schedulingGates" }];
  }
  if (gates.length === 0 || asString(at(object, "spec", "nodeName")) === "") return [];
  const why = "cannot be set until all schedulingGates have been cleared";
  return [{ reason: "FieldValueForbidden", message: `Forbidden: ${why}`, field: "spec.nodeName" }];
}

/** The part of a pod's spec that updates must not change. */
function podFixed(object: KubeObject): JsonObject {
  const {
    activeDeadlineSeconds: _a,
    tolerations: _t,
    terminationGracePeriodSeconds: _g,
    ephemeralContainers: _e,
    ...rest
  } = asObject(object["spec"]);
  const withoutImages = (list: Json | undefined): Json[] =>
    asArray(list).map((item) => ({ ...asObject(item), image: "" }));
  const { schedulingGates: _s, ...fixed } = rest;
  return {
    ...fixed,
    containers: withoutImages(rest["containers"]),
    initContainers: withoutImages(rest["initContainers"]),
  };
}

function containerCauses(podSpec: JsonObject, path: string): Cause[] {
  const containers = asArray(podSpec["containers"]);
  if (containers.length === 0) return [requiredValue(`${path}.containers`)];
  const causes: Cause[] = [];
  const seen = new Set<string>();
  for (const [index, item] of containers.entries()) {
    const name = asString(asObject(item)["name"]);
    const field = `${path}.containers[${index}]`;
    if (!/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name)) {
      causes.push(
        invalidValue(
          `${field}.name`,
          name,
          "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'",
        ),
      );
    }
    if (seen.has(name))
      causes.push({
        reason: "FieldValueDuplicate",
        message: `Duplicate value: ${JSON.stringify(name)}`,
        field: `${field}.name`,
      });
    seen.add(name);
    if (asString(asObject(item)["image"]) === "") causes.push(requiredValue(`${field}.image`));
  }
  return causes;
}

function qosClass(object: KubeObject): string {
  const resources = asArray(at(object, "spec", "containers")).map((item) => asObject(asObject(item)["resources"]));
  const any = resources.some((item) =>
    [item["requests"], item["limits"]].some((part) => Object.keys(asObject(part)).length > 0),
  );
  if (!any) return "BestEffort";
  const guaranteed = resources.every((item) => {
    const limits = asObject(item["limits"]);
    return ["cpu", "memory"].every(
      (name) => limits[name] !== undefined && equal(asObject(item["requests"])[name] ?? limits[name], limits[name]),
    );
  });
  return guaranteed ? "Guaranteed" : "Burstable";
}

const namespace: Strategy = {
  prepareCreate(object) {
    object["spec"] = { finalizers: ["kubernetes"] };
    object["status"] = { phase: "Active" };
    object.metadata.labels = { ...object.metadata.labels, "kubernetes.io/metadata.name": object.metadata.name ?? "" };
  },
  prepareUpdate(object, old) {
    object["spec"] = old["spec"];
  },
};

/** Workloads: selector immutable, selector matches the template, template valid. `status`: counts that a new object has. */
function workload(status: JsonObject = {}): Strategy {
  return {
    defaults(object) {
      const template = at(object, "spec", "template");
      if (isObject(template) && isObject(template["spec"]))
        pod.defaults?.({ ...template, kind: "Pod", apiVersion: "v1", metadata: {} });
      const strategy = at(object, "spec", "strategy");
      if (object.kind === "Deployment" && isObject(strategy) && strategy["type"] === "RollingUpdate") {
        strategy["rollingUpdate"] = { maxSurge: "25%", maxUnavailable: "25%", ...asObject(strategy["rollingUpdate"]) };
      }
    },
    prepareCreate(object) {
      object["status"] = { ...status };
    },
    validate(object, old) {
      const selector = asObject(at(object, "spec", "selector", "matchLabels"));
      const labels = asObject(at(object, "spec", "template", "metadata", "labels"));
      const causes = [
        ...immutable(["spec", "selector"], object, old),
        ...containerCauses(asObject(at(object, "spec", "template", "spec")), "spec.template.spec"),
      ];
      if (!Object.entries(selector).every(([key, value]) => labels[key] === value)) {
        causes.push(
          invalidValue("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"),
        );
      }
      const replicas = at(object, "spec", "replicas");
      if (typeof replicas === "number" && replicas < 0) {
        causes.push(invalidValue("spec.replicas", replicas, "must be greater than or equal to 0"));
      }
      return causes;
    },
  };
}

const service: Strategy = {
  defaults(object) {
    for (const port of asArray(spec(object)["ports"])) if (isObject(port)) port["targetPort"] ??= port["port"];
  },
  prepareCreate(object) {
    object["status"] = { loadBalancer: {} };
  },
  validate(object, old) {
    const clusterIp = asString(at(old, "spec", "clusterIP"));
    const ports = asArray(spec(object)["ports"]);
    const causes =
      clusterIp === "" || spec(object)["type"] === "ExternalName" ? [] : immutable(["spec", "clusterIP"], object, old);
    for (const [index, item] of ports.entries()) {
      const port = asObject(item)["port"];
      if (typeof port !== "number" || port < 1 || port > 65_535) {
        causes.push(invalidValue(`spec.ports[${index}].port`, port, "must be between 1 and 65535, inclusive"));
      }
      if (ports.length > 1 && asString(asObject(item)["name"]) === "")
        causes.push(requiredValue(`spec.ports[${index}].name`));
    }
    return causes;
  },
};

const secret: Strategy = {
  prepareCreate: mergeStringData,
  prepareUpdate: mergeStringData,
  validate: (object, old) => [
    ...immutable(["type"], object, old).map((cause) => ({ ...cause, field: "type" })),
    ...immutableData(object, old, ["data"]),
  ],
};

/** `stringData` is write-only. */
function mergeStringData(object: KubeObject): void {
  const text = object["stringData"];
  if (!isObject(text)) return;
  const data: JsonObject = { ...asObject(object["data"]) };
  for (const [key, value] of Object.entries(text)) data[key] = Buffer.from(asString(value)).toString("base64");
  object["data"] = data;
  delete object["stringData"];
}

function immutableData(object: KubeObject, old: KubeObject | undefined, members: readonly string[]): Cause[] {
  if (old?.["immutable"] !== true) return [];
  return [...members, "immutable"]
    .filter((member) => !equal(object[member], old[member]))
    .map((member) => ({
      reason: "FieldValueForbidden",
      message: "Forbidden: field is immutable when `immutable` is set",
      field: member,
    }));
}

const node: Strategy = {
  validate(object, old) {
    const before = asString(at(old, "spec", "podCIDR"));
    return before === "" ? [] : immutable(["spec", "podCIDR"], object, old);
  },
};

const binding: Strategy = { validate: (object, old) => immutable(["roleRef"], object, old) };

/** The strategies by kind; a group other than the core group follows after a dot. */
export const STRATEGIES: Readonly<Record<string, Strategy>> = {
  Pod: pod,
  Namespace: namespace,
  Service: service,
  Secret: secret,
  Node: node,
  ConfigMap: { validate: (object, old) => immutableData(object, old, ["data", "binaryData"]) },
  "Deployment.apps": workload(),
  "ReplicaSet.apps": workload({ replicas: 0 }),
  "DaemonSet.apps": workload({
    currentNumberScheduled: 0,
    desiredNumberScheduled: 0,
    numberMisscheduled: 0,
    numberReady: 0,
  }),
  "StatefulSet.apps": workload({ replicas: 0 }),
  "EndpointSlice.discovery.k8s.io": { validate: (object, old) => immutable(["addressType"], object, old) },
  "RoleBinding.rbac.authorization.k8s.io": binding,
  "ClusterRoleBinding.rbac.authorization.k8s.io": binding,
  "CustomResourceDefinition.apiextensions.k8s.io": { defaults: prepareCrd, validate: validateCrd },
};
