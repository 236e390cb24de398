import type { CustomResourceDefinition } from "#kube/client";
import type { CrdManifest } from "#kube/crd";

/** The compared part of a structural schema. */
interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly "x-kubernetes-preserve-unknown-fields"?: boolean;
  readonly "x-kubernetes-int-or-string"?: boolean;
}

/**
 * Pure: the reason why a lab cannot use a definition that already exists on the cluster; `undefined` if it can. Our version must be served,
 * with each of our fields in our type. Further fields and versions, texts and limits may differ.
 */
export function crdFault(
  found: Pick<CustomResourceDefinition, "spec" | "status">,
  wanted: CrdManifest,
): string | undefined {
  const [ours] = wanted.spec.versions;
  if (ours === undefined) return undefined;
  if (found.spec.scope !== wanted.spec.scope) return `its scope is ${found.spec.scope}, not ${wanted.spec.scope}`;
  if (found.spec.names.kind !== wanted.spec.names.kind) return `its kind is ${found.spec.names.kind}`;
  const version = found.spec.versions.find(({ name }) => name === ours.name);
  if (version?.served !== true) return `it does not serve version ${ours.name}`;
  const established = found.status?.conditions?.find(({ type }) => type === "Established");
  if (established?.status !== "True") return "it is not established";
  if (ours.subresources?.status !== undefined && version.subresources?.status === undefined)
    return "it has no status subresource";
  return schemaFault(version.schema?.openAPIV3Schema as Schema | undefined, ours.schema.openAPIV3Schema as Schema, "");
}

function schemaFault(found: Schema | undefined, wanted: Schema, path: string): string | undefined {
  if (found === undefined) return `it has no field ${path === "" ? "schema" : path}`;
  if (found["x-kubernetes-preserve-unknown-fields"] === true) return undefined;
  if (found["x-kubernetes-int-or-string"] !== true && found.type !== wanted.type)
    return `its field ${path === "" ? "." : path} is of type ${found.type ?? "any"}, not ${wanted.type ?? "any"}`;
  if (wanted.items !== undefined) return schemaFault(found.items, wanted.items, `${path}[]`);
  // All objects have the same metadata, regardless of the schema.
  for (const [name, schema] of Object.entries(wanted.properties ?? {})) {
    if (path === "" && name === "metadata") continue;
    const fault = schemaFault(found.properties?.[name], schema, `${path}.${name}`);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
