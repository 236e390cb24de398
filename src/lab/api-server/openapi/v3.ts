import { patchTypesOf } from "../handlers/patch.ts";
import { isObject, type Json, type JsonObject } from "../object/json.ts";
import type { Registry } from "../resources/registry.ts";
import type { ResourceDef } from "../resources/types.ts";
import { REF_PREFIX, type Schema } from "../schema/index.ts";
import { type ApiOperation, gvkOf, pathsOf } from "./paths.ts";
import { listDefinition } from "./v2.ts";

/** The definition of a patch: any object. */
const PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const PREFIX_V3 = "#/components/schemas/";

/** The OpenAPI 3 document of one group and version. */
export function documentV3(registry: Registry, group: string, version: string): JsonObject {
  const resources = registry.list().filter((resource) => resource.group === group && resource.version === version);
  const schemas: JsonObject = {};
  const paths: JsonObject = {};
  for (const resource of resources) {
    collect(registry, resource.definition, schemas);
    const definition = schemas[resource.definition];
    if (isObject(definition))
      schemas[resource.definition] = { ...definition, "x-kubernetes-group-version-kind": [gvkOf(resource)] };
    const list = listDefinition(resource);
    schemas[`${resource.definition}List`] = convert(list);
    collect(registry, "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta", schemas);
    schemas[PATCH] = { type: "object", description: "A patch in the form of its media type." };
    if (resource.scale !== undefined) collect(registry, "io.k8s.api.autoscaling.v1.Scale", schemas);
    for (const { path, operations } of pathsOf(resource)) {
      paths[path] = Object.fromEntries(
        operations.map((operation) => [operation.method, operationV3(resource, operation)]),
      );
    }
  }
  return { openapi: "3.0.0", info: { title: "Isthmus lab", version: "v1.30.0" }, paths, components: { schemas } };
}

function collect(registry: Registry, name: string, schemas: JsonObject): void {
  if (schemas[name] !== undefined) return;
  const schema = registry.definitions.get(name);
  if (schema === undefined) return;
  schemas[name] = convert(schema as unknown as Json);
  for (const [, reference = ""] of JSON.stringify(schema).matchAll(/"#\/definitions\/([^"]+)"/g))
    collect(registry, reference, schemas);
}

/** References get another prefix, and are put into `allOf` if they have siblings (OpenAPI 3.0 forbids siblings of `$ref`). */
function convert(value: Json): Json {
  if (Array.isArray(value)) return value.map(convert);
  if (!isObject(value)) return value;
  const { $ref, ...rest } = value as JsonObject;
  const converted: JsonObject = {};
  for (const [key, member] of Object.entries(rest)) if (member !== undefined) converted[key] = convert(member);
  if ((value as Schema)["x-kubernetes-int-or-string"] === true && value["type"] !== undefined) delete converted["type"];
  if (typeof $ref !== "string") return converted;
  const reference = { $ref: PREFIX_V3 + $ref.slice(REF_PREFIX.length) };
  return Object.keys(converted).length === 0 ? reference : { ...converted, allOf: [reference] };
}

function operationV3(resource: ResourceDef, operation: ApiOperation): JsonObject {
  const schema = { $ref: PREFIX_V3 + resource.definition + (operation.action === "list" ? "List" : "") };
  const types = operation.method === "patch" ? patchTypesOf(resource) : ["*/*"];
  // If a patch has no body here, kubectl sends strategic merge patches, also to custom resources, which do not accept them.
  const bodyOf = operation.method === "patch" ? PATCH : resource.definition;
  const content = Object.fromEntries(types.map((type) => [type, { schema: { $ref: PREFIX_V3 + bodyOf } }]));
  return {
    operationId: operation.id,
    parameters: operation.query.map((name) => ({ name, in: "query", schema: { type: "string", uniqueItems: true } })),
    ...(["post", "put", "patch"].includes(operation.method) ? { requestBody: { content, required: true } } : {}),
    responses: { "200": { description: "OK", content: { "application/json": { schema } } } },
    "x-kubernetes-action": operation.action,
    "x-kubernetes-group-version-kind": gvkOf(resource),
  };
}
