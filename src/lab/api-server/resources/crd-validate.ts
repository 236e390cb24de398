import { compileRules } from "../cel/index.ts";
import type { Cause } from "../errors.ts";
import { asArray, asObject, asString, at, isObject, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import { invalidValue, requiredValue, type Schema } from "../schema/index.ts";

/** The bound on nesting of a CRD's schema. */
const MAX_SCHEMA_DEPTH = 100;

/** Faults of a CustomResourceDefinition beyond its own schema: names, versions, and whether its schemas are structural. */
export function validateCrd(object: KubeObject, old: KubeObject | undefined): Cause[] {
  const spec = asObject(object["spec"]);
  const causes: Cause[] = [];
  const plural = asString(at(spec, "names", "plural"));
  const group = asString(spec["group"]);
  if (object.metadata.name !== `${plural}.${group}`) {
    causes.push(invalidValue("metadata.name", object.metadata.name, `must be spec.names.plural+"."+spec.group`));
  }
  if (!/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$/.test(group)) {
    causes.push(invalidValue("spec.group", group, "should be a domain with at least one dot"));
  }
  if (!/^[a-z]([-a-z0-9]*[a-z0-9])?$/.test(plural))
    causes.push(invalidValue("spec.names.plural", plural, "must be a DNS-1035 label"));
  const scope = spec["scope"];
  if (scope !== "Namespaced" && scope !== "Cluster") {
    causes.push({
      reason: "FieldValueNotSupported",
      message: `Unsupported value: ${JSON.stringify(scope ?? "")}: supported values: "Cluster", "Namespaced"`,
      field: "spec.scope",
    });
  }
  if (old !== undefined) {
    for (const path of [["scope"], ["group"], ["names", "kind"], ["names", "plural"]]) {
      if (at(spec, ...path) !== at(old["spec"], ...path))
        causes.push(invalidValue(["spec", ...path].join("."), at(spec, ...path), "field is immutable"));
    }
  }
  causes.push(...versionCauses(asArray(spec["versions"])));
  if (at(spec, "conversion", "strategy") === "Webhook") {
    causes.push(
      invalidValue("spec.conversion.strategy", "Webhook", "the lab's API server converts with strategy None only"),
    );
  }
  return causes;
}

function versionCauses(versions: readonly Json[]): Cause[] {
  const causes: Cause[] = [];
  if (versions.length === 0) return [requiredValue("spec.versions", "must have at least one version")];
  const stored = versions.filter((version) => asObject(version)["storage"] === true).length;
  if (stored !== 1)
    causes.push(invalidValue("spec.versions", stored, "must have exactly one version marked as storage version"));
  for (const [index, item] of versions.entries()) {
    const path = `spec.versions[${index}]`;
    const version = asObject(item);
    const schema = at(version, "schema", "openAPIV3Schema");
    if (!isObject(schema)) {
      causes.push(requiredValue(`${path}.schema.openAPIV3Schema`, "schemas are required"));
      continue;
    }
    if (schema["type"] !== "object")
      causes.push(invalidValue(`${path}.schema.openAPIV3Schema.type`, schema["type"], "must be object at the root"));
    const where = `${path}.schema.openAPIV3Schema`;
    const before = causes.length;
    structuralCauses(schema, where, true, 0, causes);
    // Rules are compiled only for a valid schema.
    if (causes.length === before) causes.push(...compileRules(schema as Schema, where).causes);
  }
  return causes;
}

/** The rules of structural schemas: a type everywhere, legal patterns, and consistent list annotations. */
function structuralCauses(schema: JsonObject, path: string, root: boolean, depth: number, causes: Cause[]): void {
  if (depth > MAX_SCHEMA_DEPTH) {
    causes.push(invalidValue(path, "...", `must not nest deeper than ${MAX_SCHEMA_DEPTH}`));
    return;
  }
  const anyType =
    schema["x-kubernetes-int-or-string"] === true || schema["x-kubernetes-preserve-unknown-fields"] === true;
  if (!root && schema["type"] === undefined && !anyType)
    causes.push(requiredValue(`${path}.type`, "must not be empty for specified object fields"));
  const pattern = schema["pattern"];
  if (typeof pattern === "string" && !isPattern(pattern))
    causes.push(invalidValue(`${path}.pattern`, pattern, "must be a valid regular expression"));
  if (schema["$ref"] !== undefined)
    causes.push({ reason: "FieldValueForbidden", message: "Forbidden: $ref is not supported", field: `${path}.$ref` });
  if (schema["properties"] !== undefined && isObject(schema["additionalProperties"])) {
    causes.push({
      reason: "FieldValueForbidden",
      message: "Forbidden: additionalProperties and properties are mutual exclusive",
      field: `${path}.additionalProperties`,
    });
  }
  listCauses(schema, path, causes);
  for (const [name, property] of Object.entries(asObject(schema["properties"]))) {
    structuralCauses(asObject(property), `${path}.properties[${name}]`, false, depth + 1, causes);
  }
  for (const key of ["items", "additionalProperties"]) {
    const inner = schema[key];
    if (isObject(inner)) structuralCauses(inner, `${path}.${key}`, false, depth + 1, causes);
  }
  if (schema["type"] === "array" && !isObject(schema["items"]))
    causes.push(requiredValue(`${path}.items`, "must be specified"));
}

function listCauses(schema: JsonObject, path: string, causes: Cause[]): void {
  const type = schema["x-kubernetes-list-type"];
  if (type === undefined) return;
  if (schema["type"] !== "array")
    causes.push(invalidValue(`${path}.type`, schema["type"], "must be array if x-kubernetes-list-type is specified"));
  if (type !== "map") return;
  const keys = asArray(schema["x-kubernetes-list-map-keys"]);
  if (keys.length === 0)
    causes.push(
      requiredValue(`${path}.x-kubernetes-list-map-keys`, "must not be empty if x-kubernetes-list-type is map"),
    );
  for (const key of keys) {
    if (at(schema, "items", "properties", asString(key)) === undefined) {
      causes.push(
        invalidValue(`${path}.x-kubernetes-list-map-keys`, key, "entries must all be names of item properties"),
      );
    }
  }
}

function isPattern(pattern: string): boolean {
  try {
    new RegExp(pattern);
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}
