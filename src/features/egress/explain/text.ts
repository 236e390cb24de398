import type { ClientWay } from "./client-way.ts";
import type { RouterEnd } from "./routers.ts";
import type { WayAnswer, WayRow } from "./way.ts";

/** The way inside the pod as lines for people. Pure. */
export function clientWayText({ way, egress, outer, notes }: ClientWay, namespace: string): string[] {
  return [
    `in the pod's network namespace ${namespace}${way.mark === 0 ? "" : `, with mark ${way.mark}`}:`,
    ...rowLines(way.rows),
    ...endLines(way, egress),
    ...(outer === undefined || way.tunnel === undefined
      ? []
      : [
          "",
          `the tunnel's packets, to ${way.tunnel.remote} port ${way.tunnel.port}/UDP:`,
          ...rowLines(outer.rows),
          ...endLines(outer, undefined),
        ]),
    ...(notes.length === 0 ? [] : ["", ...notes.map((note) => `note: ${note}`)]),
  ];
}

function rowLines(rows: readonly WayRow[]): string[] {
  const width = Math.max(0, ...rows.map(({ rule }) => rule.length));
  return rows.map(({ priority, rule, result }) => `  ${String(priority).padEnd(6)} ${rule.padEnd(width)}  ${result}`);
}

function endLines(way: WayAnswer, egress: ClientWay["egress"]): string[] {
  const { outcome, device, tunnel, isGuard, kernel } = way;
  const confirmed = way.isConfirmed ? "; the kernel's look-up says the same" : `; the kernel's look-up says: ${kernel}`;
  switch (outcome) {
    case "local":
      return [`it is for the pod itself${confirmed}`];
    case "refused":
      return [
        isGuard
          ? `it is refused: the sender gets "no route to host", by the route that holds the place of a tunnel${confirmed}`
          : `it is refused (${kernel})${confirmed}`,
      ];
    case "link":
      return [`leaves by ${device?.name ?? "an interface"} with the pod's address, not through a tunnel${confirmed}`];
    case "tunnel": {
      const identifier = tunnel?.vni === undefined ? "" : `, identifier ${tunnel.vni}`;
      const whose = egress === undefined ? "no known Egress" : `Egress ${egress.namespace}/${egress.name}`;
      return [
        `goes into tunnel ${device?.name} (${tunnel?.driver}${identifier}, MTU ${device?.mtu} bytes) of ${whose}, Service address ${tunnel?.remote}${confirmed}`,
      ];
    }
  }
}

/** Returns the actions of the routers as lines for people. Pure. */
export function routerText(routers: readonly RouterEnd[]): string[] {
  return routers.flatMap(({ pod, node, leavesAs, rule, isThere }) => {
    const place = [pod === undefined ? "" : `pod ${pod}`, node === undefined ? "" : `on ${node}`].filter(
      (one) => one !== "",
    );
    const seen =
      isThere === undefined
        ? "not looked at: it is not on this machine"
        : isThere
          ? "its packet filter has the rule"
          : "its packet filter lacks the rule: look at coil-egress's log";
    return [
      `at the router ${leavesAs}${place.length === 0 ? "" : ` (${place.join(" ")})`}: masquerades, the receiver sees ${leavesAs}`,
      `  ${rule}  (${seen})`,
    ];
  });
}
