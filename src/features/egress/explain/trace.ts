import type { IpAddress, IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";

/** The objects of a namespace that decide the way of a packet that it sends, in one family. */
export interface WayView {
  readonly links: readonly Link[];
  /** In the order of the kernel. */
  readonly rules: readonly Rule[];
  /** The routes of all tables that a rule looks up. */
  readonly routes: readonly Route[];
}

/** A packet that a namespace sends. */
export interface SentPacket {
  readonly destination: IpAddress;
  /** Absent: the kernel chooses it by the route. */
  readonly source?: IpAddress | undefined;
  readonly mark: number;
}

/** The result of a rule that applies to a packet. */
export interface WayStep {
  readonly rule: Rule;
  /** The route of the table that applies; absent if the table has none, or the rule looks up no table. */
  readonly route?: Route;
  /** `next`: the rules after this one are asked. `jump`: those from another priority on. */
  readonly result: "next" | "jump" | "leaves" | "refused";
}

/** The rules that apply to a packet, up to the one that decides. The last one has `leaves` or `refused`; no rule decides if neither is there. */
export type Way = readonly WayStep[];

/** Reads what decides. Throws `KernelError`. */
export function viewWay(net: Pick<NetStack, "links" | "routes" | "rules">, family: IpFamily): WayView {
  const rules = net.rules.list(family);
  const tables = new Set(rules.filter(({ action }) => action === "lookup").map(({ table }) => table));
  return {
    links: net.links.list(),
    rules,
    routes: [...tables].flatMap((table) => net.routes.list({ family, table })),
  };
}

/** Pure: the rules that apply to a packet, in the order of the kernel, and what each does. */
export function traceWay({ rules, routes }: WayView, packet: SentPacket): Way {
  const steps: WayStep[] = [];
  for (let at = 0; at < rules.length; at += 1) {
    const rule = rules[at];
    if (rule === undefined || !applies(rule, packet)) continue;
    const step = stepOf(rule, routes, packet);
    if (step === undefined) continue;
    steps.push(step);
    if (step.result === "leaves" || step.result === "refused") return steps;
    if (step.result !== "jump") continue;
    const target = rules.findIndex(({ priority }, to) => to > at && priority === rule.goto);
    // A target that does not exist: the kernel goes on with the next rule.
    if (target >= 0) at = target - 1;
  }
  return steps;
}

/** Returns true if a rule applies to a packet of the namespace's own; for the kernel it comes in by the loopback interface. */
function applies(rule: Rule, { destination, source, mark }: SentPacket): boolean {
  const { from, to, iif, oif, fwmark, fwmask = 0xffff_ffff, invert = false } = rule;
  const matches =
    (from === undefined || (source !== undefined && from.contains(source)) || from.prefixLength === 0) &&
    (to === undefined || to.contains(destination)) &&
    (iif === undefined || iif === "lo") &&
    oif === undefined &&
    (fwmark === undefined || ((mark ^ fwmark) & fwmask) === 0);
  return matches !== invert;
}

/** `undefined`: the rule does nothing. */
function stepOf(rule: Rule, routes: readonly Route[], { destination }: SentPacket): WayStep | undefined {
  switch (rule.action) {
    case "nop":
      return undefined;
    case "goto":
      return { rule, result: "jump" };
    case "blackhole":
    case "unreachable":
    case "prohibit":
      return { rule, result: "refused" };
    case "lookup": {
      const route = longestOf(routes, rule.table, destination);
      if (route === undefined) return { rule, result: "next" };
      if (route.type === "throw") return { rule, route, result: "next" };
      if (isRefusal(route)) return { rule, route, result: "refused" };
      const isSuppressed = route.dst.prefixLength <= (rule.suppressPrefixLength ?? -1);
      return { rule, route, result: isSuppressed ? "next" : "leaves" };
    }
  }
}

const isRefusal = ({ type }: Route): boolean => type === "unreachable" || type === "prohibit" || type === "blackhole";

function longestOf(routes: readonly Route[], table: number, destination: IpAddress): Route | undefined {
  let best: Route | undefined;
  for (const route of routes) {
    if (route.table !== table || !route.dst.contains(destination)) continue;
    const longer = route.dst.prefixLength - (best?.dst.prefixLength ?? -1);
    if (best === undefined || longer > 0 || (longer === 0 && (route.metric ?? 0) < (best.metric ?? 0))) best = route;
  }
  return best;
}

/** The answer of the kernel to the same packet: the route, or the reason why there is none. Throws `KernelError` for any other failure. */
export function askKernel(
  net: Pick<NetStack, "routes">,
  packet: SentPacket,
): { readonly route: Route } | { readonly refused: string } {
  try {
    return { route: net.routes.lookup(packet) };
  } catch (error) {
    if (!isKernelError(error, "unreachable", "not-permitted", "invalid")) throw error;
    return { refused: error.errno ?? error.code };
  }
}

/** Pure: whether the kernel's answer is the one that its rules and routes give. */
export function agrees(way: Way, answer: ReturnType<typeof askKernel>): boolean {
  const last = way.at(-1);
  const found = last?.result === "leaves" ? last.route : undefined;
  if ("refused" in answer || found === undefined) return "refused" in answer && found === undefined;
  const text = ({ dst, table, linkIndex, gateway }: Route): string => [dst, table, linkIndex, gateway].join(" ");
  return text(found) === text(answer.route);
}
