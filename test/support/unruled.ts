import type { CrdManifest } from "#kube/coil";

/** What our CRDs have beyond Coil's. */
const ADDED = ["x-kubernetes-validations", "format", "maxItems", "maxLength", "pattern"];

/** A CRD as Coil's own has it, and ours had it before: without rules and formats. What is stored under it may be refused by ours. */
export function unruled(crd: CrdManifest): CrdManifest {
  return JSON.parse(JSON.stringify(crd, (key, value) => (ADDED.includes(key) ? undefined : value))) as CrdManifest;
}
