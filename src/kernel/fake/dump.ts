import type { Address } from "#kernel/address";
import type { NextHop, Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";
import type { FakeNamespace } from "./namespace.ts";

/** The state of a namespace as text, like the output of ip(8), sorted: equal states have equal text. Local routes are left out. */
export function dumpNamespace(ns: FakeNamespace): string {
  const name = (index: number | undefined): string => ns.links.get(index ?? 0)?.name ?? `if${index}`;
  const lines: string[] = [];
  for (const link of [...ns.links.values()].sort((a, b) => a.index - b.index)) {
    const parts = [`link ${link.name}`, link.kind ?? "loopback", `mtu ${link.mtu}`, link.up ? "up" : "down"];
    if (link.kind === "veth" && link.peer !== undefined) parts.push(`peer ${link.peer.name}`);
    if (link.masterIndex !== undefined) parts.push(`master ${name(link.masterIndex)}`);
    if (link.alias !== "") parts.push(`alias ${link.alias}`);
    lines.push(parts.join(" "));
    lines.push(
      ...ns.addresses
        .filter((own) => own.linkIndex === link.index)
        .map(addressLine)
        .sort(),
    );
  }
  lines.push(
    ...ns.routes
      .filter(({ table }) => table !== 255)
      .map((route) => routeLine(route, name))
      .sort(),
  );
  lines.push(
    ...ns.rules
      .filter(({ protocol }) => protocol !== 2)
      .map(ruleLine)
      .sort(),
  );
  for (const one of ns.neighbours) {
    lines.push(
      `neighbour ${one.address} dev ${name(one.linkIndex)} ${one.proxy ? "proxy" : `lladdr ${one.mac} ${one.state}`}`,
    );
  }
  for (const entry of ns.fouPorts) lines.push(`fou port ${entry.port} ipproto ${entry.ipProtocol} inet${entry.family}`);
  return lines.join("\n");
}

function addressLine(own: Address): string {
  return `  address ${own.address}/${own.prefixLength} scope ${own.scope}${own.noDad ? " nodad" : ""}`;
}

function routeLine(route: Route, name: (index: number | undefined) => string): string {
  const parts = ["route", route.type === "unicast" ? String(route.dst) : `${route.type} ${route.dst}`];
  parts.push(
    ...(route.multipath?.map((hop) => `nexthop ${wayText(hop, name)} weight ${hop.weight}`) ?? [wayText(route, name)]),
  );
  parts.push(`table ${route.table} proto ${route.protocol}`);
  if (route.src !== undefined) parts.push(`src ${route.src}`);
  if (route.metric !== undefined) parts.push(`metric ${route.metric}`);
  if (route.encap !== undefined) parts.push(`encap ${route.encap.type} id ${route.encap.id} dst ${route.encap.dst}`);
  return parts.filter((part) => part !== "").join(" ");
}

function wayText(way: Partial<NextHop>, name: (index: number | undefined) => string): string {
  const parts: string[] = [];
  if (way.gateway !== undefined) parts.push(`via ${way.gateway}`);
  if (way.linkIndex !== undefined) parts.push(`dev ${name(way.linkIndex)}`);
  if (way.onlink === true) parts.push("onlink");
  return parts.join(" ");
}

function ruleLine(rule: Rule): string {
  const { family, priority, table, action, ...match } = rule;
  const matches = Object.entries(match).map(([key, value]) => `${key} ${value}`);
  return [`rule inet${family}`, priority, ...matches, action === "lookup" ? `lookup ${table}` : action].join(" ");
}
