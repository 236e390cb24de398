import type { CrdManifest } from "#kube/crd";

/** Members of our CRDs that Coil's do not have. */
const ADDED = ["x-kubernetes-validations", "format", "maxItems", "maxLength", "pattern"];

/** A CRD like Coil's own, without rules and formats. Ours may refuse objects that are stored under it. */
export function unruled(crd: CrdManifest): CrdManifest {
  return JSON.parse(JSON.stringify(crd, (key, value) => (ADDED.includes(key) ? undefined : value))) as CrdManifest;
}
