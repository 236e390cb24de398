import { checkRules } from "../cel/index.ts";
import { ApiError, badRequest, type Cause, invalid } from "../errors.ts";
import { clone, isObject, type JsonObject } from "../object/json.ts";
import { apiVersionOf, type KubeObject } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import { applyDefaults, type Definitions, invalidValue, prune, requiredValue, validate } from "../schema/index.ts";
import { isLabelKey, isLabelValue } from "../select/label.ts";

/** The handling of members that the schema does not have (query parameter `fieldValidation`). */
export type FieldValidation = "Ignore" | "Warn" | "Strict";

/** Turns a body into an object of the resource: of the right kind, with metadata. Changes `body` in place. Throws ApiError. */
export function toKubeObject(resource: ResourceDef, body: JsonObject): KubeObject {
  const apiVersion = apiVersionOf(resource.group, resource.version);
  const found = { apiVersion: body["apiVersion"] ?? apiVersion, kind: body["kind"] ?? resource.kind };
  if (found.apiVersion !== apiVersion || found.kind !== resource.kind) {
    throw badRequest(
      `the API version in the data (${String(found.apiVersion)}, Kind=${String(found.kind)}) does not match the expected API version (${apiVersion}, Kind=${resource.kind})`,
    );
  }
  const metadata = body["metadata"] ?? {};
  if (!isObject(metadata)) throw badRequest("cannot decode the object: metadata must be an object");
  body["apiVersion"] = apiVersion;
  body["kind"] = resource.kind;
  body["metadata"] = metadata;
  dropEmpty(metadata);
  return body as KubeObject;
}

/** Members of ObjectMeta that Go leaves out when they are empty: `labels: {}` is not stored. */
const OMITTED_WHEN_EMPTY = ["labels", "annotations", "finalizers", "ownerReferences"];

function dropEmpty(metadata: JsonObject): void {
  for (const key of OMITTED_WHEN_EMPTY) {
    const value = metadata[key];
    if (Array.isArray(value) ? value.length === 0 : isObject(value) && Object.keys(value).length === 0)
      delete metadata[key];
  }
}

/** Prunes and defaults in place; unknown members are refused, reported in a warning, or dropped silently. */
export function normalize(
  object: KubeObject,
  resource: ResourceDef,
  definitions: Definitions,
  mode: FieldValidation,
  warn: (text: string) => void,
): void {
  const unknown = prune(object, resource.schema, { definitions, dropNulls: !resource.custom });
  if (unknown.length > 0 && mode === "Strict") {
    const list = unknown.map((path) => `unknown field ${JSON.stringify(path)}`).join(", ");
    throw badRequest(
      `${resource.kind} in version ${JSON.stringify(resource.version)} cannot be handled as a ${resource.kind}: strict decoding error: ${list}`,
    );
  }
  if (mode === "Warn") for (const path of unknown) warn(`unknown field ${JSON.stringify(path)}`);
  applyDefaults(object, resource.schema, definitions);
}

const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const SUBDOMAIN_RULE =
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";

function nameFault(resource: ResourceDef, name: string): string | undefined {
  if (resource.group === "rbac.authorization.k8s.io")
    return /^[^/%]+$/.test(name) && name !== "." && name !== ".." ? undefined : "may not contain '/' or '%'";
  if (resource.group === "" && (resource.kind === "Namespace" || resource.kind === "Service")) {
    return LABEL.test(name) && name.length <= 63 ? undefined : "must be a DNS label of at most 63 characters";
  }
  return SUBDOMAIN.test(name) && name.length <= 253 ? undefined : SUBDOMAIN_RULE;
}

/** Faults of metadata: name, labels, annotations' size, finalizers. */
export function metadataCauses(resource: ResourceDef, object: KubeObject): Cause[] {
  const { metadata } = object;
  const causes: Cause[] = [];
  if (metadata.name === undefined || metadata.name === "")
    causes.push(requiredValue("metadata.name", "name or generateName is required"));
  else {
    const fault = nameFault(resource, metadata.name);
    if (fault !== undefined) causes.push(invalidValue("metadata.name", metadata.name, fault));
  }
  for (const [key, value] of Object.entries(metadata.labels ?? {})) {
    if (!isLabelKey(key))
      causes.push(
        invalidValue("metadata.labels", key, "name part must consist of alphanumeric characters, '-', '_' or '.'"),
      );
    if (!isLabelValue(value)) {
      causes.push(
        invalidValue(
          "metadata.labels",
          value,
          "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', at most 63",
        ),
      );
    }
  }
  for (const key of Object.keys(metadata.annotations ?? {})) {
    if (!isLabelKey(key.toLowerCase())) causes.push(invalidValue("metadata.annotations", key, "not a qualified name"));
  }
  const size = Object.entries(metadata.annotations ?? {}).reduce(
    (sum, [key, value]) => sum + key.length + value.length,
    0,
  );
  if (size > 256 * 1024) {
    causes.push({
      reason: "FieldValueTooLong",
      message: "Too long: must have at most 262144 bytes",
      field: "metadata.annotations",
    });
  }
  for (const [index, owner] of (metadata.ownerReferences ?? []).entries()) {
    if (!owner.uid || !owner.kind || !owner.name || !owner.apiVersion) {
      causes.push(
        requiredValue(`metadata.ownerReferences[${index}]`, "apiVersion, kind, name and uid must not be empty"),
      );
    }
  }
  return causes;
}

/**
 * Refuses an object with any fault. Throws ApiError `Invalid` with all of them. Faults that the old object had already are reported by
 * `warn`.
 */
export function validateObject(
  resource: ResourceDef,
  object: KubeObject,
  old: KubeObject | undefined,
  definitions: Definitions,
  warn: (text: string) => void,
): void {
  const { custom, rules } = resource;
  const before = custom && old !== undefined ? asRead(resource, old, definitions) : undefined;
  const causes = validate(object, resource.schema, definitions, { custom, old: before });
  // The other checks read members whose types the schema check has confirmed.
  if (causes.length === 0) {
    causes.push(...metadataCauses(resource, object));
    causes.push(...(resource.strategy.validate?.(object, old) ?? []));
    if (old?.metadata.deletionTimestamp !== undefined) causes.push(...newFinalizers(object, old));
  }
  if (rules !== undefined) {
    if (causes.some(({ reason }) => BLOCKING.has(reason))) causes.push(RULES_NOT_CHECKED);
    else causes.push(...checkRules(rules, object, before, warn));
  }
  if (causes.length > 0) throw invalid(resource, object.metadata.name ?? "", causes);
}

/** A stored object according to the present schema: pruned, with defaults. */
function asRead(resource: ResourceDef, stored: KubeObject, definitions: Definitions): KubeObject {
  const object = clone(stored) as KubeObject;
  prune(object, resource.schema, { definitions, dropNulls: false });
  applyDefaults(object, resource.schema, definitions);
  return object;
}

/** Faults after which rules would read data of a wrong type. */
const BLOCKING = new Set([
  "FieldValueNotSupported",
  "FieldValueRequired",
  "FieldValueTooLong",
  "FieldValueTooMany",
  "FieldValueTypeInvalid",
]);

const RULES_NOT_CHECKED: Cause = {
  reason: "FieldValueInvalid",
  field: "<nil>",
  message:
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
};

function newFinalizers(object: KubeObject, old: KubeObject): Cause[] {
  const before = old.metadata.finalizers ?? [];
  const added = (object.metadata.finalizers ?? []).filter((name) => !before.includes(name));
  if (added.length === 0) return [];
  const why = "Forbidden: no new finalizers can be added if the object is being deleted";
  return [
    {
      reason: "FieldValueForbidden",
      message: `${why}, found new finalizers ${JSON.stringify(added)}`,
      field: "metadata.finalizers",
    },
  ];
}

/** A query parameter's value as a {@link FieldValidation}. */
export function parseFieldValidation(text: string | null): FieldValidation {
  if (text === null || text === "") return "Warn";
  if (text === "Ignore" || text === "Warn" || text === "Strict") return text;
  throw new ApiError(
    "Invalid",
    `fieldValidation: Unsupported value: ${JSON.stringify(text)}: supported values: "Ignore", "Strict", "Warn"`,
  );
}
