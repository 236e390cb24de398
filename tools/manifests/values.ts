import * as v from "valibot";

const text = v.string();
/** A name, address or path, which stands in templates without quotes. */
const word = v.pipe(
  v.string(),
  v.regex(/^[\w./:,@%+~\][-]*$/, "only letters, digits and . / : , @ % + ~ [ ] _ - may be here"),
);
const words = v.array(word);
const filled = v.pipe(word, v.minLength(1));
const port = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(65_535));
const seconds = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(86_400));
const count = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(100));
const texts = v.array(v.string());
const quantities = v.record(v.string(), v.union([v.string(), v.number()]));
/** A part of an object of Kubernetes, which the API server checks. */
const anyObject = v.record(v.string(), v.unknown());

const workload = {
  priorityClassName: word,
  nodeSelector: v.record(v.string(), v.string()),
  tolerations: v.array(anyObject),
  resources: v.strictObject({ requests: v.optional(quantities), limits: v.optional(quantities) }),
  extraArgs: texts,
};
const oneForEachNode = v.strictObject(workload);
const replicated = v.strictObject({ replicas: count, ...workload });
const tunnelEnd = {
  enabled: v.boolean(),
  kind: v.picklist(["DaemonSet", "StaticPod"]),
  certificates: word,
};

/** The values of the chart: `values.schema.json` is made of this, and our own rendering checks values with it. Unknown ones are refused. */
export const valuesSchema = v.strictObject({
  image: v.strictObject({
    repository: filled,
    tag: word,
    pullPolicy: v.picklist(["Always", "IfNotPresent", "Never"]),
  }),
  imagePullSecrets: v.array(v.strictObject({ name: text })),
  logLevel: v.picklist(["debug", "info", "warn", "error"]),
  metrics: v.strictObject({ from: words, authorization: v.boolean() }),
  apiServer: v.strictObject({ host: text, port }),
  webhooks: v.strictObject({ clientCA: text, clientNames: words }),
  pods: v.strictObject({
    enabled: v.boolean(),
    addresses: v.boolean(),
    compatCalico: v.boolean(),
    netconf: text,
    pools: v.array(v.strictObject({ name: word, spec: anyObject })),
    serviceAccount: v.strictObject({ name: filled, namespace: filled }),
    restrictNodes: v.boolean(),
  }),
  router: v.strictObject({ enabled: v.boolean() }),
  egress: v.strictObject({
    enabled: v.boolean(),
    tunnelDriver: v.picklist(["fou", "vxlan", "auto"]),
    backend: v.picklist(["iptables", "nftables"]),
    originatingOnly: v.boolean(),
    addressRanges: words,
    restrictTemplates: v.boolean(),
    templates: v.strictObject({ maxReplicas: count, priorityClasses: words, tolerationKeys: words }),
  }),
  serviceProxy: v.strictObject({
    enabled: v.boolean(),
    mode: v.picklist(["nftables", ""]),
    clusterCIDR: text,
    healthzPort: port,
    metricsBindAddress: text,
    restrictNodes: v.boolean(),
    config: anyObject,
  }),
  tunnel: v.strictObject({
    reverse: v.strictObject({ enabled: v.boolean(), port, target: word, bindAddresses: words, podCIDRs: words }),
    agent: v.strictObject({ ...tunnelEnd, serverHost: word, serverPort: port }),
    server: v.strictObject({
      ...tunnelEnd,
      agentPort: port,
      count,
      mode: v.picklist(["grpc", "http-connect"]),
      socketFolder: word,
    }),
  }),
  uplinkProxy: v.strictObject({ enabled: v.boolean(), config: anyObject, terminationGracePeriodSeconds: seconds }),
  nics: v.strictObject({
    enabled: v.boolean(),
    provider: v.picklist(["neutron", "alcor"]),
    clusterId: word,
    credentials: text,
    credentialsSecret: word,
    netconf: text,
    taps: v.boolean(),
    ovsdb: word,
  }),
  workloads: v.strictObject({
    coild: oneForEachNode,
    coilIpamController: replicated,
    coilEgressController: replicated,
    coilRouter: oneForEachNode,
    serviceProxy: oneForEachNode,
    proxyAgent: oneForEachNode,
    proxyServer: oneForEachNode,
    uplinkProxy: oneForEachNode,
    nicController: replicated,
    nicAgent: oneForEachNode,
  }),
});

/** A JSON schema. */
type JsonSchema = Readonly<Record<string, unknown>>;

/** The schema of a chart's values as Helm reads it (JSON schema, draft 7). Throws a plain error for a part that it does not know. */
export function jsonSchema(): JsonSchema {
  return {
    $schema: "http://json-schema.org/draft-07/schema#",
    title: "Values of the chart isthmus",
    ...schemaOf(valuesSchema),
  };
}

/** The fields of a schema of valibot that are read here. */
interface Node {
  readonly type: string;
  readonly requirement?: number | RegExp;
  readonly entries?: Readonly<Record<string, Node>>;
  readonly item?: Node;
  readonly value?: Node;
  readonly wrapped?: Node;
  readonly options?: readonly unknown[];
  readonly pipe?: readonly Node[];
}
const LIMITS: Readonly<Record<string, string>> = {
  min_value: "minimum",
  max_value: "maximum",
  min_length: "minLength",
};

function schemaOf(schema: unknown): JsonSchema {
  const node = schema as Node;
  if (node.pipe !== undefined) return Object.assign({}, ...node.pipe.map(stepOf)) as JsonSchema;
  const { type, entries = {}, options = [] } = node;
  if (type === "string" || type === "number" || type === "boolean") return { type };
  if (type === "unknown") return {};
  if (type === "picklist") return { type: "string", enum: options };
  if (type === "union") return { anyOf: options.map(schemaOf) };
  if (type === "array") return { type: "array", items: schemaOf(node.item) };
  if (type === "record") return { type: "object", additionalProperties: schemaOf(node.value) };
  if (type === "optional") return schemaOf(node.wrapped);
  if (type !== "strict_object") throw new Error(`no JSON schema is known for ${type} of valibot`);
  const required = Object.keys(entries).filter((key) => entries[key]?.type !== "optional");
  return {
    type: "object",
    additionalProperties: false,
    ...(required.length > 0 && { required }),
    properties: Object.fromEntries(Object.entries(entries).map(([key, value]) => [key, schemaOf(value)])),
  };
}

/** A step of a pipe: the first is a schema, the others limit it. */
function stepOf(step: Node): JsonSchema {
  if (step.type === "integer") return { type: "integer" };
  if (step.requirement instanceof RegExp) return { pattern: step.requirement.source };
  const limit = LIMITS[step.type];
  return limit === undefined ? schemaOf({ ...step, pipe: undefined }) : { [limit]: step.requirement };
}
