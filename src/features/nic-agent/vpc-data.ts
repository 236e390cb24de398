import { LEGACY_NICS_ANNOTATION, LEGACY_VPC_ANNOTATION, NICS_ANNOTATION, VPC_ANNOTATION } from "#kube/nic";

/** True if a pod asks for NICs of a VPC by its annotations, or is in one. Pure. */
export function hasVpcData(annotations: Readonly<Record<string, string>>): boolean {
  const names = (key: string): boolean => annotations[key] !== undefined;
  // NICs alone have the VPC of the namespace, which is written beside them only by the webhook.
  const lists = (key: string): boolean => !hasNoNics(annotations[key] ?? "");
  return [VPC_ANNOTATION, LEGACY_VPC_ANNOTATION].some(names) || [NICS_ANNOTATION, LEGACY_NICS_ANNOTATION].some(lists);
}

/** True for a list of NICs without any: a pod of no VPC may have it. An annotation has up to 256 KiB, each of which is looked at twice. */
function hasNoNics(annotation: string): boolean {
  const text = annotation.trim();
  if (["", "null", "~"].includes(text)) return true;
  return text.startsWith("[") && text.endsWith("]") && text.slice(1, -1).trim() === "";
}
