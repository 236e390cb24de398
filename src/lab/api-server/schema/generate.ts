/**
 * Writes `builtin.gen.ts`: the schemas of the built-in kinds, from the declarations of the package `kubernetes-types` and
 * the tables in `annotations.ts`. Run it after updating that package: `node src/lab/api-server/schema/generate.ts`.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import type { Json } from "../object/json.ts";
import { ATOMIC_MAPS, ATOMIC_STRUCTS, BYTES, DEFAULTS, LIST_ANNOTATIONS, MISSING, RETAIN_KEYS } from "./annotations.ts";
import { REF_PREFIX, type Schema } from "./schema.ts";

const ROOTS: readonly string[] = [
  ..."Pod Node Namespace Service Endpoints ConfigMap Secret ServiceAccount Event Binding"
    .split(" ")
    .map((kind) => `core.v1.${kind}`),
  ..."Deployment DaemonSet ReplicaSet StatefulSet".split(" ").map((kind) => `apps.v1.${kind}`),
  ..."Role ClusterRole RoleBinding ClusterRoleBinding".split(" ").map((kind) => `rbac.v1.${kind}`),
  ..."PodDisruptionBudget Eviction".split(" ").map((kind) => `policy.v1.${kind}`),
  "networking.v1.NetworkPolicy",
  ..."SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview"
    .split(" ")
    .map((kind) => `authorization.v1.${kind}`),
  "authentication.v1.TokenReview",
  "admissionregistration.v1.MutatingWebhookConfiguration",
  "admissionregistration.v1.ValidatingAdmissionPolicy",
  "admissionregistration.v1.ValidatingAdmissionPolicyBinding",
  "admissionregistration.v1.ValidatingWebhookConfiguration",
  "apiextensions.v1.CustomResourceDefinition",
  "autoscaling.v1.Scale",
  "coordination.v1.Lease",
  "discovery.v1.EndpointSlice",
  "events.v1.Event",
  "meta.v1.Status",
  "meta.v1.ListMeta",
  "meta.v1.DeleteOptions",
  "scheduling.v1.PriorityClass",
];

const NUMBERS = new Set(["JSONSchemaProps.maximum", "JSONSchemaProps.minimum", "JSONSchemaProps.multipleOf"]);

function fullName(short: string): string {
  if (short.startsWith("meta.v1.")) return `io.k8s.apimachinery.pkg.apis.${short}`;
  if (short.startsWith("apiextensions.")) return `io.k8s.apiextensions-apiserver.pkg.apis.${short}`;
  if (short.startsWith("api.resource.")) return `io.k8s.apimachinery.pkg.${short}`;
  if (short.startsWith("runtime.")) return `io.k8s.apimachinery.pkg.${short}`;
  return `io.k8s.api.${short}`;
}

/** The first sentences, at most about 240 characters: enough for `kubectl explain`. */
function shorten(comment: string): string {
  const text = comment.replace(/\s+/g, " ").trim();
  if (text.length <= 240) return text;
  const end = text.slice(0, 240).lastIndexOf(". ");
  return end > 60 ? text.slice(0, end + 1) : `${text.slice(0, 237)}...`;
}

function comment(raw: string | undefined): string {
  return shorten((raw ?? "").replace(/^\/\*\*|\*\/$/g, "").replace(/^\s*\* ?/gm, ""));
}

interface Module {
  readonly name: string;
  readonly imports: ReadonlyMap<string, string>;
}

function typeSchema(text: string, field: string, module: Module): Schema {
  const type = text.trim();
  const array = /^Array<(.*)>$/s.exec(type) ?? /^(.*)\[\]$/s.exec(type);
  if (array?.[1] !== undefined) return { type: "array", items: typeSchema(array[1], field, module) };
  const map = /^\{\s*\[name: string\]: (.*?);?\s*\}$/s.exec(type);
  if (map?.[1] !== undefined) return { type: "object", additionalProperties: typeSchema(map[1], field, module) };
  if (type === "string" || /^"[^"]*"( \| "[^"]*")*$/.test(type)) return { type: "string" };
  if (type === "boolean") return { type: "boolean" };
  if (type === "number") return { type: NUMBERS.has(field) ? "number" : "integer" };
  if (type === "number | string") return { "x-kubernetes-int-or-string": true };
  if (type === "any" || type === "object" || /^\{\s*\}$/.test(type))
    return { "x-kubernetes-preserve-unknown-fields": true };
  if (type === "Time" || type === "MicroTime") return { type: "string", format: "date-time" };
  if (type === "Quantity") return { type: "string", format: "quantity", "x-kubernetes-int-or-string": true };
  if (type === "JSON" || type === "FieldsV1" || type.startsWith("JSONSchemaPropsOr") || type === "RawExtension") {
    return { "x-kubernetes-preserve-unknown-fields": true };
  }
  if (/^[A-Za-z0-9]+$/.test(type))
    return { $ref: REF_PREFIX + fullName(module.imports.get(type) ?? `${module.name}.${type}`) };
  throw new Error(`Cannot convert the type of ${module.name} ${field}: found ${JSON.stringify(type)}`);
}

function annotate(short: string, property: string, schema: Schema): Schema {
  const spec = LIST_ANNOTATIONS[short]?.[property];
  if (BYTES[short]?.includes(property) === true) {
    return { ...schema, additionalProperties: { type: "string", format: "byte" } };
  }
  if (ATOMIC_MAPS[short]?.includes(property) === true) return { ...schema, "x-kubernetes-map-type": "atomic" };
  if (RETAIN_KEYS[short]?.includes(property) === true)
    return { ...schema, "x-kubernetes-patch-strategy": "retainKeys" };
  if (spec === undefined) return schema;
  const result: Schema = { ...schema };
  const merge = /^merge(,retain)?(?: (?!map|set|atomic)(\S+))?/.exec(spec);
  if (merge !== null) {
    result["x-kubernetes-patch-strategy"] = merge[1] === undefined ? "merge" : "merge,retainKeys";
    if (merge[2] !== undefined) result["x-kubernetes-patch-merge-key"] = merge[2];
  }
  const map = / ?map (.*)$/.exec(spec);
  if (map?.[1] !== undefined) {
    result["x-kubernetes-list-type"] = "map";
    result["x-kubernetes-list-map-keys"] = map[1].split(" ");
  } else if (/\bset$/.test(spec)) result["x-kubernetes-list-type"] = "set";
  else if (/\batomic$/.test(spec)) result["x-kubernetes-list-type"] = "atomic";
  return result;
}

function parseModule(path: string, name: string, out: Map<string, Schema>): void {
  const text = readFileSync(path, "utf8");
  const imports = new Map<string, string>();
  for (const [, names = "", from = ""] of text.matchAll(/^import \{([^}]*)\} from "([^"]+)";/gm)) {
    const target = from.replace(/^(\.\.?\/)+/, "").replaceAll("/", ".");
    const qualified = /^v\d/.test(target) ? `${name.split(".")[0]}.${target}` : target;
    for (const item of names.split(",")) imports.set(item.trim(), `${qualified}.${item.trim()}`);
  }
  for (const match of text.matchAll(/(\/\*\*(?:(?!\*\/)[\s\S])*\*\/)?\s*export interface (\w+) \{\n([\s\S]*?)^\}/gm)) {
    const [, doc, kind = "", body = ""] = match;
    const short = `${name}.${kind}`;
    const schema: Schema = { type: "object", description: comment(doc), properties: {} };
    const fields =
      /(?:^|\n)\s*(\/\*\*(?:(?!\*\/)[\s\S])*\*\/)?\s*(?:readonly )?"?([$\w-]+)"?(\?)?: ((?:\{[^}]*\}|[^;{])+);/g;
    for (const [, about, property = "", optional, type = ""] of body.matchAll(fields)) {
      if (schema.properties === undefined) continue;
      const base = typeSchema(type, `${kind}.${property}`, { name, imports });
      schema.properties[property] = { description: comment(about), ...annotate(short, property, base) };
      const fallback = DEFAULTS[short]?.[property];
      if (fallback !== undefined) Object.assign(schema.properties[property] ?? {}, { default: fallback as Json });
      if (optional === undefined) schema.required = [...(schema.required ?? []), property];
    }
    Object.assign(schema.properties ?? {}, MISSING[short]);
    if (ATOMIC_STRUCTS.includes(short)) schema["x-kubernetes-map-type"] = "atomic";
    out.set(short, schema);
  }
}

function reach(name: string, all: ReadonlyMap<string, Schema>, out: Map<string, Schema>): void {
  if (out.has(name)) return;
  const schema = all.get(name);
  if (schema === undefined) throw new Error(`No declaration for ${name}`);
  out.set(name, schema);
  for (const [, ref = ""] of JSON.stringify(schema).matchAll(/"#\/definitions\/([^"]+)"/g)) reach(ref, all, out);
}

function main(): void {
  const root = dirname(createRequire(import.meta.url).resolve("kubernetes-types/package.json"));
  const short = new Map<string, Schema>();
  for (const file of readdirSync(root, { recursive: true, encoding: "utf8" })) {
    if (!/\/v\d\w*\.d\.ts$/.test(file)) continue;
    parseModule(join(root, file), file.replace(/\.d\.ts$/, "").replaceAll("/", "."), short);
  }
  const all = new Map(Array.from(short, ([name, schema]) => [fullName(name), schema] as const));
  const wanted = new Map<string, Schema>();
  for (const name of ROOTS) reach(fullName(name), all, wanted);
  const lines = Array.from(wanted)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, schema]) => `  ${JSON.stringify(JSON.stringify([name, schema]))},`);
  const header = "// Generated by generate.ts from the package kubernetes-types. Do not edit.";
  const doc =
    "/** Each line is JSON: [definition name, schema]. Strings, so that loading the module parses nothing. */";
  const target = join(import.meta.dirname, "builtin.gen.ts");
  writeFileSync(
    target,
    `${header}\n${doc}\nexport const BUILTIN_SCHEMAS: readonly string[] = [\n${lines.join("\n")}\n];\n`,
  );
}

main();
