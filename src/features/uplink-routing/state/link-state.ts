import type { Link } from "#kernel/link";

/** Pure: administratively up, and not known to be without carrier (`unknown` is what devices without the notion say). */
export function isUp(link: Link | undefined): boolean {
  return link?.up === true && (link.operState === "up" || link.operState === "unknown");
}
