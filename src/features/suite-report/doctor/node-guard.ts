import { flagOf } from "../programs.ts";
import { type FaultCheck, judged } from "./faults.ts";
import { DAEMONS, isOurs, runs } from "./node-cni.ts";
import type { NodeFacts } from "./node-facts.ts";

/** Plugins that let a pod send with any source. */
const UNGUARDED: ReadonlySet<string> = new Set(["ptp", "bridge", "macvlan", "ipvlan", "host-device", "vlan"]);

/** Tables of the source guard. */
const GUARD_TABLES = 2;

/** Packets of pods have the sources that the pods may use. */
export function sourceGuard(facts: NodeFacts): readonly FaultCheck[] {
  const coild = runs(facts, "coild");
  if (coild === undefined) return [];
  const { ok, warning, unknown, wrong } = judged("source-guard", "sources of pods");
  if (flagOf(coild.flags, "enable-ipam") === "false") return guardOfOthers(facts);
  const mode = flagOf(coild.flags, "source-guard") ?? "on";
  const off = "let --source-guard=count show what it would drop, then set it to on";
  if (mode === "off") return [warning("are not checked (--source-guard=off): any pod can send as any other", off)];
  if (facts.guard === undefined) return [];
  if ("fault" in facts.guard) return [unknown(`cannot be read: ${facts.guard.fault}`)];
  const { tables, refusals } = facts.guard.value;
  if (tables.length < GUARD_TABLES)
    return [
      wrong(
        "are not checked: the tables of the source guard are missing",
        "look at the log of coild: the kernel may lack nf_tables with inet and arp, or another program removes them",
      ),
    ];
  const done = mode === "count" ? "passed, and would be dropped with --source-guard=on" : "are dropped";
  const found = refusals.map(({ reason, source, link, pod }) => {
    const at = judged("source-guard", pod.length === 0 ? link : `${link} (pod ${pod.join(", ")})`);
    if (reason === "outside")
      return at.warning(
        `packets with the source ${source} of a pod of this node come in by this link: they ${done}`,
        "find out who sends them: somebody forges the address, or a load balancer returns packets of pods unchanged",
      );
    if (reason === "link-local")
      return at.warning(
        `link-local packets of IPv6 from ${source} ${done}`,
        "a pod may use neighbour discovery and MLD with its node, from at most 8 addresses; use the pod's address for all else",
      );
    return at.warning(
      `packets with the source ${source} (${reason}), which is not the pod's, ${done}`,
      "if the pod shall route for others: annotate its Namespace with isthmus.dev/allowed-sources and the pod with isthmus.dev/extra-sources",
    );
  });
  if (found.length > 0) return found;
  return [ok(mode === "count" ? "are counted, and nothing is dropped (--source-guard=count)" : "are checked")];
}

/** Behind another plugin that one guards, or nobody does. */
function guardOfOthers({ cni }: NodeFacts): readonly FaultCheck[] {
  const { warning, unknown } = judged("source-guard", "sources of pods");
  const chain = "value" in cni ? cni.value.find(isOurs)?.plugins.map(({ type }) => type) : undefined;
  const plugin = chain?.find((type) => !Object.hasOwn(DAEMONS, type));
  if (plugin === undefined) return [];
  if (!UNGUARDED.has(plugin))
    return [unknown(`are up to ${plugin}, behind which coild is: its documents say whether it checks them`)];
  return [
    warning(
      `are checked by nobody: coild is behind ${plugin}, which lets pods send with any source`,
      "let a network policy's enforcer guard them, or give pods their links by coild",
    ),
  ];
}
