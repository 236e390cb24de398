import { patchTypesOf } from "../handlers/patch.ts";
import type { Json, JsonObject } from "../object/json.ts";
import type { Registry } from "../resources/registry.ts";
import type { ResourceDef } from "../resources/types.ts";
import { REF_PREFIX, type Schema } from "../schema/index.ts";
import { gvkOf, pathsOf } from "./paths.ts";

/** The OpenAPI 2 document of everything that is served. */
export function documentV2(registry: Registry): JsonObject {
  const definitions: JsonObject = {};
  const kinds = new Map(registry.list().map((resource) => [resource.definition, resource] as const));
  for (const [name, schema] of registry.definitions) {
    const resource = kinds.get(name);
    definitions[name] = {
      ...definitionV2(schema),
      ...(resource === undefined ? {} : { "x-kubernetes-group-version-kind": [gvkOf(resource)] }),
    };
  }
  const paths: JsonObject = {};
  for (const resource of registry.list()) {
    definitions[`${resource.definition}List`] = listDefinition(resource);
    for (const { path, operations } of pathsOf(resource)) {
      paths[path] = Object.fromEntries(
        operations.map((operation) => [operation.method, operationV2(resource, operation)]),
      );
    }
  }
  return { swagger: "2.0", info: { title: "Isthmus lab", version: "v1.30.0" }, paths, definitions };
}

function operationV2(
  resource: ResourceDef,
  operation: {
    readonly method: string;
    readonly id: string;
    readonly action: string;
    readonly query: readonly string[];
  },
): JsonObject {
  const parameters: Json[] = operation.query.map((name) => ({ name, in: "query", type: "string", uniqueItems: true }));
  if (operation.method === "post" || operation.method === "put") {
    parameters.push({ name: "body", in: "body", required: true, schema: { $ref: REF_PREFIX + resource.definition } });
  }
  return {
    operationId: operation.id,
    consumes: operation.method === "patch" ? patchTypesOf(resource) : ["*/*"],
    produces: ["application/json", "application/yaml"],
    schemes: ["https"],
    parameters,
    responses: {
      "200": {
        description: "OK",
        schema: { $ref: REF_PREFIX + resource.definition + (operation.action === "list" ? "List" : "") },
      },
    },
    "x-kubernetes-action": operation.action,
    "x-kubernetes-group-version-kind": gvkOf(resource),
  };
}

/** The definition of a resource's list kind. */
export function listDefinition(resource: ResourceDef): JsonObject {
  const text = (description: string): JsonObject => ({ type: "string", description });
  return {
    description: `${resource.listKind} is a list of ${resource.kind}`,
    type: "object",
    required: ["items"],
    properties: {
      apiVersion: text("APIVersion defines the versioned schema of this representation of an object."),
      kind: text("Kind is a string value representing the REST resource this object represents."),
      items: {
        type: "array",
        description: `List of ${resource.plural}.`,
        items: { $ref: REF_PREFIX + resource.definition },
      },
      metadata: {
        $ref: `${REF_PREFIX}io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta`,
        description: "Standard list metadata.",
      },
    },
    "x-kubernetes-group-version-kind": [{ ...gvkOf(resource), kind: resource.listKind }],
  };
}

/** Members of schemas that OpenAPI 2 does not have. */
const DROPPED = new Set([
  "nullable",
  "anyOf",
  "oneOf",
  "not",
  "x-kubernetes-validations",
  "x-kubernetes-group-version-kind",
]);

/** A schema in OpenAPI 2: a part that it cannot express is left open, so that clients do not refuse valid objects. */
function definitionV2(schema: Schema): JsonObject {
  if (schema["x-kubernetes-preserve-unknown-fields"] === true || schema.nullable === true) {
    const { description } = schema;
    return { ...(description === undefined ? {} : { description }), "x-kubernetes-preserve-unknown-fields": true };
  }
  const result: JsonObject = {};
  for (const [key, value] of Object.entries(schema)) {
    if (DROPPED.has(key) || value === undefined) continue;
    if (key === "properties") result[key] = mapValues(value as { [name: string]: Schema });
    else if (key === "items") result[key] = definitionV2(value as Schema);
    else if (key === "additionalProperties")
      result[key] = typeof value === "object" ? definitionV2(value as Schema) : (value as Json);
    else if (key === "allOf") result[key] = (value as Schema[]).map(definitionV2);
    else if (key === "type" && schema["x-kubernetes-int-or-string"] === true) continue;
    else result[key] = value as Json;
  }
  return result;
}

function mapValues(schemas: { [name: string]: Schema }): JsonObject {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, definitionV2(schema)]));
}
