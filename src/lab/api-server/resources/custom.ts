import { compileRules } from "../cel/index.ts";
import { asArray, asObject, asString, at, isObject, type Json, type JsonObject } from "../object/json.ts";
import { apiVersionOf, type KubeObject } from "../object/meta.ts";
import { OBJECT_META, REF_PREFIX, type Schema } from "../schema/index.ts";
import { customColumns } from "../table/custom.ts";
import { ALL_VERBS, type ResourceDef, type ScalePaths } from "./types.ts";

/** A custom resource in one version, with the schema to register under its definition's name. */
export interface CustomVersion {
  readonly resource: ResourceDef;
  readonly definition: Schema;
}

/** The resources that an accepted CustomResourceDefinition serves, one for each served version. */
export function customResources(crd: KubeObject): CustomVersion[] {
  const spec = asObject(crd["spec"]);
  const versions = asArray(spec["versions"]).map((version) => asObject(version));
  const stored = versions.find((version) => version["storage"] === true);
  return versions
    .filter((version) => version["served"] === true)
    .map((version) => customVersion(spec, version, asString(stored?.["name"])));
}

function customVersion(spec: JsonObject, version: JsonObject, stored: string): CustomVersion {
  const names = asObject(spec["names"]);
  const group = asString(spec["group"]);
  const name = asString(version["name"]);
  const kind = asString(names["kind"]);
  const subresources = asObject(version["subresources"]);
  const definition = `${group.split(".").reverse().join(".")}.${name}.${kind}`;
  const deprecated = version["deprecated"] === true;
  const resource: ResourceDef = {
    group,
    version: name,
    kind,
    listKind: asString(names["listKind"]),
    plural: asString(names["plural"]),
    singular: asString(names["singular"]),
    shortNames: asArray(names["shortNames"]).map(asString),
    categories: asArray(names["categories"]).map(asString),
    namespaced: spec["scope"] === "Namespaced",
    storage: `${asString(names["plural"])}.${group}`,
    definition,
    schema: { $ref: REF_PREFIX + definition },
    // Rules that do not compile were refused with the CRD.
    rules: compileRules(asObject(at(version, "schema", "openAPIV3Schema")) as Schema, "schema").rules,
    verbs: [...ALL_VERBS],
    hasStatus: isObject(subresources["status"]),
    generation: true,
    scale: scalePaths(subresources["scale"]),
    columns: customColumns(asArray(version["additionalPrinterColumns"])),
    selectableFields: new Set(
      asArray(version["selectableFields"]).map((item) => asString(asObject(item)["jsonPath"]).replace(/^\./, "")),
    ),
    strategy: {},
    custom: true,
    storageApiVersion: apiVersionOf(group, stored),
    deprecationWarning: deprecated
      ? asString(version["deprecationWarning"]) || `${group}/${name} ${kind} is deprecated`
      : undefined,
  };
  return { resource, definition: rootSchema(at(version, "schema", "openAPIV3Schema"), resource) };
}

function scalePaths(scale: Json | undefined): ScalePaths | undefined {
  if (!isObject(scale)) return undefined;
  const path = (text: Json | undefined): string[] => asString(text).replace(/^\./, "").split(".");
  return {
    specReplicas: path(scale["specReplicasPath"]),
    statusReplicas: path(scale["statusReplicasPath"]),
    ...(scale["labelSelectorPath"] === undefined ? {} : { selector: path(scale["labelSelectorPath"]) }),
  };
}

/** The CRD's schema with the members of every object. */
function rootSchema(schema: Json | undefined, resource: ResourceDef): Schema {
  const own = asObject(schema) as Schema;
  return {
    ...own,
    type: "object",
    properties: {
      apiVersion: {
        type: "string",
        description: "APIVersion defines the versioned schema of this representation of an object.",
      },
      kind: {
        type: "string",
        description: "Kind is a string value representing the REST resource this object represents.",
      },
      ...own.properties,
      metadata: { description: "Standard object's metadata.", ...OBJECT_META },
    },
    "x-kubernetes-group-version-kind": [{ group: resource.group, version: resource.version, kind: resource.kind }],
  };
}
