import type { Link } from "#kernel/link";

/** Pure: whether the link is administratively up and not without carrier (devices without carrier detection report `unknown`). */
export function isUp(link: Link | undefined): boolean {
  return link?.up === true && (link.operState === "up" || link.operState === "unknown");
}
