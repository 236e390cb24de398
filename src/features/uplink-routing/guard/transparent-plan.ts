import { Cidr, type IpFamily } from "#base/ip";
import type { Settings, TransparentSettings } from "#base/uplink-model";
import { type NftTable, NftTransaction } from "#kernel/nft";
import type { RouteSpec } from "#kernel/route";
import type { RuleSpec } from "#kernel/rule";
import { bypassOf } from "../state/index.ts";

/** A table that only this program uses: it is made, replaced and removed as a whole (docs/spec/uplink-proxy.md#14). */
export const TRANSPARENT_TABLE = { family: "inet", name: "uplink_proxy" } as const satisfies NftTable;

/** Ports of a node's own components. They are never redirected, regardless of the settings (docs/spec/uplink-proxy.md#14). */
const NEVER: ReadonlySet<number> = new Set([53, 2379, 2380, 6443, 9345, 10_250]);
const MULTICAST = [Cidr.parse("224.0.0.0/4"), Cidr.parse("ff00::/8")];
const DEFAULT = { 4: Cidr.parse("0.0.0.0/0"), 6: Cidr.parse("::/0") } as const;
const LOOPBACK_INDEX = 1;
/** Distinguishes the mark of our own sockets from the mark of redirected connections. */
const OWN_BIT = 0x100;

/** The numbers that identify the kernel's part of transparent mode, without the rest of the settings. */
export interface TransparentMarks {
  readonly mark: number;
  readonly table: number;
  readonly rulePriority: number;
  readonly routeProtocol: number;
}

/** The kernel's part of transparent mode. */
export interface TransparentPlan {
  readonly routes: readonly RouteSpec[];
  readonly rules: readonly RuleSpec[];
  readonly nft: NftTransaction;
}

/** Pure: SO_MARK of each outgoing socket of the proxy, so that the socket is not redirected to the proxy. */
export function ownMark({ mark }: Pick<TransparentSettings, "mark">): number {
  return mark ^ OWN_BIT;
}

/** Pure: the marks for these settings. */
export function transparentMarks({ transparent, routing }: Settings): TransparentMarks {
  const { mark, table, rulePriority } = transparent;
  return { mark, table, rulePriority, routeProtocol: routing.routeProtocol };
}

/** Pure: routes and rules that deliver marked packets to this host. */
export function transparentRouting(
  marks: TransparentMarks,
  families: readonly IpFamily[] = [4, 6],
): Pick<TransparentPlan, "routes" | "rules"> {
  const { mark, table, rulePriority: priority, routeProtocol: protocol } = marks;
  return {
    routes: families.map((family) => ({
      dst: DEFAULT[family],
      type: "local",
      linkIndex: LOOPBACK_INDEX,
      scope: family === 4 ? "host" : "global",
      table,
      protocol,
    })),
    rules: families.map((family) => ({ family, priority, fwmark: mark, table, protocol })),
  };
}

/** Options of the redirection. */
export interface TransparentOptions {
  readonly cgroups: readonly string[];
  readonly ownUid?: number;
  readonly families?: readonly IpFamily[];
  /**
   * Redirection ends this many seconds after the last {@link renewLease}, even if proxy and watchdog have ended: the kernel then removes
   * the set element that the rule requires. Default: redirection has no time limit.
   */
  readonly leaseSeconds?: number;
}

/** Pure: renews the lease. Deletes and adds in one transaction, because an existing element keeps its timeout. */
export function renewLease(leaseSeconds: number): NftTransaction {
  const element = leaseElement(leaseSeconds);
  return new NftTransaction(TRANSPARENT_TABLE)
    .elements(LEASE, [element])
    .deleteElements(LEASE, [{ key: element.key }])
    .elements(LEASE, [element]);
}

function leaseElement(timeoutSeconds: number): { readonly key: readonly string[]; readonly timeoutSeconds: number } {
  return { key: ["tcp"], timeoutSeconds };
}

/** The set of protocols that are redirected. */
const LEASE = "alive";

/**
 * Pure: redirects TCP connections that this host opens from now on to the chosen ports; connections that are open
 * already are not redirected, because only a SYN marks a connection. Never redirected: our own sockets (recognized by mark, which also
 * works for a proxy that runs as root), the users and cgroups to skip, answers, this host's own addresses, and the bypass set.
 */
export function planTransparent(settings: Settings, options: TransparentOptions): TransparentPlan {
  const { transparent } = settings;
  const { mark, port } = transparent;
  const tx = new NftTransaction(TRANSPARENT_TABLE).replaceTable();
  const ports = [...new Set(transparent.ports)].filter((one) => !NEVER.has(one));
  const bypass = widest([...bypassOf(settings, []), ...MULTICAST]);
  const of = (family: IpFamily) => bypass.filter((prefix) => prefix.family === family);
  tx.set("ports", { key: "inet_service" }).elements(
    "ports",
    ports.map((one) => ({ key: [String(one)] })),
  );
  tx.set("bypass4", { key: "ipv4_addr", flags: ["interval"] }).elements("bypass4", of(4).map(element));
  tx.set("bypass6", { key: "ipv6_addr", flags: ["interval"] }).elements("bypass6", of(6).map(element));
  tx.chain("output", { type: "route", hook: "output", priority: "mangle", policy: "accept" });
  const skip = (match: string): void => void tx.rule("output", `${match} accept`);
  skip("meta l4proto != tcp");
  skip('oifname "lo"');
  skip(`meta mark ${ownMark(transparent)}`);
  const uids = [...transparent.skipUids, ...(options.ownUid ? [options.ownUid] : [])];
  if (uids.length > 0) skip(`meta skuid { ${[...new Set(uids)].join(", ")} }`);
  for (const path of options.cgroups) skip(cgroupMatch(path));
  skip("ct direction reply");
  skip("fib daddr type { local, broadcast, multicast }");
  skip("ip daddr @bypass4");
  skip("ip6 daddr @bypass6");
  const { leaseSeconds } = options;
  if (leaseSeconds !== undefined) {
    tx.set(LEASE, { key: "inet_proto", flags: ["timeout"] }).elements(LEASE, [leaseElement(leaseSeconds)]);
  }
  const lease = leaseSeconds === undefined ? "" : `meta l4proto @${LEASE} `;
  tx.rule("output", `${lease}tcp flags & (fin | syn | rst | ack) == syn tcp dport @ports ct mark set ${mark}`);
  tx.rule("output", `ct mark ${mark} meta mark set ${mark}`);
  tx.chain("prerouting", { type: "filter", hook: "prerouting", priority: "mangle", policy: "accept" });
  const taken = `iifname "lo" meta mark ${mark}`;
  tx.rule("prerouting", `${taken} meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:${port}`);
  tx.rule("prerouting", `${taken} meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:${port}`);
  return { ...transparentRouting(transparentMarks(settings), options.families), nft: tx };
}

/** Pure: matches sockets of a cgroup and those below it; nft resolves the path when the rule is added. */
export function cgroupMatch(path: string): string {
  const parts = path.split("/").filter((part) => part !== "");
  return `socket cgroupv2 level ${parts.length} "${parts.join("/")}"`;
}

/** Leaves out prefixes that are inside another prefix, because an interval set refuses overlapping prefixes. */
function widest(prefixes: readonly Cidr[]): Cidr[] {
  const sorted = [...prefixes].sort((a, b) => a.prefixLength - b.prefixLength);
  const kept: Cidr[] = [];
  for (const prefix of sorted) if (!kept.some((one) => one.contains(prefix))) kept.push(prefix);
  return kept;
}

function element(prefix: Cidr): { readonly key: readonly string[] } {
  return { key: [prefix.toString()] };
}
