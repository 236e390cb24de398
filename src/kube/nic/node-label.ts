import { createHash } from "node:crypto";

/** The longest value of a label. */
const MAX_LABEL = 63;

/**
 * The value of the label of NicClaims that have a node: its name. A node's name can have 253 characters and a label's value 63, so a longer one is its
 * beginning and a part of its SHA-256. Pure.
 */
export function nodeLabelValue(nodeName: string): string {
  if (nodeName.length <= MAX_LABEL) return nodeName;
  return `${nodeName.slice(0, 52)}-${createHash("sha256").update(nodeName).digest("hex").slice(0, 10)}`;
}
