/**
 * CustomResourceDefinitions as data: schemas from which TypeScript derives the static types, the manifest of a kind, and faults of fields.
 *
 * Owns: the building of schemas and manifests, the wording of faults. Does not know: any kind.
 *
 * ```ts
 * const spec = object({ size: int32({ minimum: 1 }) }, { required: ["size"] });
 * type Spec = Static<typeof spec>; // { size: number }
 * const manifest = crd({ type, description: "A box.", properties: { spec }, required: ["spec"] });
 * ```
 */
export {
  duplicate,
  type FieldFault,
  forbidden,
  invalid,
  notSupported,
  required,
  tooLong,
  tooMany,
  unknownField,
} from "./faults.ts";
export { type CrdManifest, crd, labelColumn } from "./manifest.ts";
export {
  array,
  boolean,
  int32,
  intOrString,
  listMap,
  map,
  object,
  oneOf,
  opaque,
  type SchemaNode,
  type SchemaRule,
  type Static,
  string,
} from "./schema.ts";
