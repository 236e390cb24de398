import { Cidr, IpAddress, type IpFamily, MacAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { RouteSpec } from "#kernel/route";
import type { Rule, RuleSpec } from "#kernel/rule";
import { MAX_NICS } from "#kube/nic";
import { FIRST_PRIORITY, FIRST_TABLE } from "./routing.ts";
import type { NicPlan, PlannedRoute, PlannedRule } from "./types.ts";

const MAIN_TABLE = 254;

/** The parts of a NIC that are set in the sandbox. */
export type SandboxSide = Pick<NicPlan, "name" | "mac" | "mtu" | "addresses" | "routes" | "rules" | "acceptRa">;

/** An address and its prefix length. */
export interface SplitAddress {
  readonly address: IpAddress;
  readonly prefixLength: number;
}

/** Splits `10.0.0.5/24`; without a length it is the whole address. Throws `IpParseError`. */
export function splitAddress(text: string): SplitAddress {
  const [address = "", length] = text.split("/");
  const parsed = IpAddress.parse(address);
  return { address: parsed, prefixLength: length === undefined ? parsed.bits : Number(length) };
}

/**
 * Sets a link as a NIC wants it: settings and addresses while it is down, then up, routes and rules. What is there already is
 * success. Throws `KernelError`.
 */
export function configureSandbox(stack: NetStack, linkIndex: number, nic: SandboxSide): void {
  setIpv6(stack, nic);
  stack.links.set(linkIndex, {
    ...(nic.mtu === undefined ? {} : { mtu: nic.mtu }),
    ...(nic.mac === undefined ? {} : { mac: MacAddress.parse(nic.mac) }),
  });
  for (const one of nic.addresses) stack.addresses.replace({ linkIndex, ...splitAddress(one), noDad: true });
  stack.links.set(linkIndex, { up: true });
  for (const route of nic.routes) unlessThere(() => stack.routes.add(routeSpec(route, linkIndex)));
  for (const rule of nic.rules) unlessThere(() => stack.rules.add(ruleSpec(rule)));
}

/** Brings the loopback device of a sandbox up. Throws `KernelError`. */
export function raiseLoopback(stack: NetStack): void {
  const loopback = stack.links.get({ name: "lo" });
  if (loopback !== undefined && !loopback.up) stack.links.set(loopback.index, { up: true });
}

/** Runtimes switch IPv6 off in sandboxes, and some kernels have none. */
function setIpv6(stack: NetStack, { name, addresses, acceptRa }: SandboxSide): void {
  const set = (key: string, value: string): void => stack.sysctl.set(`net/ipv6/conf/${name}/${key}`, value);
  if (addresses.some((one) => one.includes(":")) || acceptRa) {
    set("disable_ipv6", "0");
    // Packets to the NIC's own addresses come in by lo.
    stack.sysctl.set("net/ipv6/conf/lo/disable_ipv6", "0");
  }
  try {
    if (!acceptRa) set("accept_ra", "0");
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
  }
}

/** The rules of a family; none on a kernel that does not have the family, as with `ipv6.disable=1`. Throws `KernelError`. */
export function rulesOf(stack: NetStack, family: IpFamily): readonly Rule[] {
  try {
    return stack.rules.list(family);
  } catch (error) {
    if (!isKernelError(error, "unsupported")) throw error;
    return [];
  }
}

/** Returns true if a rule has the priority and the table of a NIC, or of the NIC at this index. Pure. */
export function isOurRule(
  { priority, table }: { readonly priority: number; readonly table: number },
  only?: number,
): boolean {
  const index = priority - FIRST_PRIORITY;
  if (only !== undefined && index !== only) return false;
  return index >= 0 && index < MAX_NICS && table === FIRST_TABLE + index;
}

/**
 * Removes the rules of all NICs of a sandbox, also of such that nobody remembers, or those of the NIC at an index; routes and addresses go with
 * their links. Throws `KernelError`.
 */
export function removeRules(stack: NetStack, only?: number): void {
  for (const family of [4, 6] as const)
    for (const rule of rulesOf(stack, family).filter((one) => isOurRule(one, only))) stack.rules.delete(rule);
}

/** The differences between a sandbox and a NIC, in words; empty without one. Throws `KernelError`. */
export function sandboxDifferences(stack: NetStack, nic: SandboxSide): string[] {
  const link = stack.links.get({ name: nic.name });
  if (link === undefined) return [`${nic.name} is missing in the sandbox`];
  const found: string[] = [];
  const differs = (what: string, has: unknown, wanted: unknown): void => {
    if (String(has) !== String(wanted)) found.push(`${nic.name} has ${what} ${String(has)}, not ${String(wanted)}`);
  };
  if (!link.up) found.push(`${nic.name} is down`);
  if (nic.mac !== undefined) differs("MAC address", link.mac, MacAddress.parse(nic.mac));
  if (nic.mtu !== undefined) differs("MTU", link.mtu, nic.mtu);
  const addresses = stack.addresses.list({ linkIndex: link.index });
  for (const one of nic.addresses) {
    const { address, prefixLength } = splitAddress(one);
    if (!addresses.some((own) => own.address.equals(address) && own.prefixLength === prefixLength))
      found.push(`${nic.name} lacks the address ${one}`);
  }
  for (const route of nic.routes) {
    if (!hasRoute(stack, link.index, route))
      found.push(
        `${nic.name} lacks the route ${route.dst}${route.via === undefined ? "" : ` via ${route.via}`} in table ${route.table ?? "main"}`,
      );
  }
  for (const { from, table, priority } of nic.rules) {
    const rules = rulesOf(stack, from.includes(":") ? 6 : 4);
    if (!rules.some((rule) => rule.priority === priority && rule.table === table && String(rule.from) === from))
      found.push(`the sandbox lacks the rule from ${from} lookup ${table}`);
  }
  return found;
}

function hasRoute(stack: NetStack, linkIndex: number, route: PlannedRoute): boolean {
  const dst = Cidr.parse(route.dst);
  return stack.routes
    .list({ family: dst.family, table: route.table ?? MAIN_TABLE, linkIndex })
    .some(
      (own) =>
        own.dst.equals(dst) &&
        (route.via === undefined || String(own.gateway) === route.via) &&
        (route.metric === undefined || own.metric === route.metric),
    );
}

function routeSpec({ dst, via, table, metric, onlink }: PlannedRoute, linkIndex: number): RouteSpec {
  return {
    dst: Cidr.parse(dst),
    linkIndex,
    ...(via === undefined ? {} : { gateway: IpAddress.parse(via) }),
    ...(table === undefined ? {} : { table }),
    ...(metric === undefined ? {} : { metric }),
    ...(onlink === true ? { onlink } : {}),
  };
}

function ruleSpec({ from, table, priority }: PlannedRule): RuleSpec {
  const cidr = Cidr.parse(from);
  return { family: cidr.family, priority, table, from: cidr };
}

function unlessThere(work: () => void): void {
  try {
    work();
  } catch (error) {
    if (!isKernelError(error, "already-exists")) throw error;
  }
}
