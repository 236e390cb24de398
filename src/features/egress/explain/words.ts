import type { Link } from "#kernel/link";
import type { Route } from "#kernel/route";
import type { RuleSpec } from "#kernel/rule";

/** The tables that `ip` prints by name. */
const TABLES: Readonly<Record<number, string>> = { 253: "default", 254: "main", 255: "local" };

/** A table as `ip` prints it. */
export function tableText(table: number): string {
  return TABLES[table] ?? String(table);
}

/** A rule as `ip rule` prints it, without its priority. */
export function ruleText({
  action = "lookup",
  table = 0,
  from,
  to,
  fwmark,
  fwmask,
  iif,
  oif,
  invert,
  goto,
}: RuleSpec): string {
  const hex = (value: number): string => `0x${value.toString(16)}`;
  return [
    invert === true ? "not" : "",
    `from ${from ?? "all"}`,
    to === undefined ? "" : `to ${to}`,
    fwmark === undefined ? "" : `fwmark ${hex(fwmark)}${fwmask === undefined ? "" : `/${hex(fwmask)}`}`,
    iif === undefined ? "" : `iif ${iif}`,
    oif === undefined ? "" : `oif ${oif}`,
    action === "lookup" ? `lookup ${tableText(table)}` : action === "goto" ? `goto ${goto}` : action,
  ]
    .filter((part) => part !== "")
    .join(" ");
}

/** A route as `ip route` prints it, without its table. */
export function routeText(
  { type, dst, gateway, linkIndex, src, metric, multipath }: Pick<Route, "type" | "dst"> & Partial<Route>,
  links: readonly Pick<Link, "index" | "name">[],
): string {
  const nameOf = (index: number | undefined): string =>
    links.find((link) => link.index === index)?.name ?? String(index);
  const isWay = type === "unicast" || type === "local";
  return [
    type === "unicast" ? "" : type,
    dst.prefixLength === 0 ? "default" : dst.hostBits === 0 ? String(dst.base) : String(dst),
    gateway === undefined ? "" : `via ${gateway}`,
    isWay && linkIndex !== undefined ? `dev ${nameOf(linkIndex)}` : "",
    ...(multipath ?? []).map(
      (hop) => `nexthop${hop.gateway === undefined ? "" : ` via ${hop.gateway}`} dev ${nameOf(hop.linkIndex)}`,
    ),
    src === undefined ? "" : `src ${src}`,
    metric === undefined ? "" : `metric ${metric}`,
  ]
    .filter((part) => part !== "")
    .join(" ");
}
